"""Tuning of a noisy channel: search for candidates, weigh them, search again."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from antiphon.api import Candidate, NoisyChannelModel
from antiphon.build import fitting_measures
from antiphon.config import Recipe
from antiphon.data.codec import TextCodec
from antiphon.data.readers import Pair, Source
from antiphon.errors import RecipeError
from antiphon.metrics import LOWER_IS_BETTER, Outputs, score_outputs
from antiphon.metrics.generation import SHARED_MEASURES
from antiphon.models.noisy_channel import Weights
from antiphon.run import RunFolder
from antiphon.search.tuning import Array, CandidateLists, find_weights

Pools = list[dict[tuple[str, ...], Candidate]]


@dataclass(frozen=True)
class Tuning:
    """What was found: the metric of a real search with the weights before and after."""

    metric: str
    before: float
    after: float
    weights_before: Weights
    weights: Weights
    rounds: int

    def as_json(self) -> dict[str, Any]:
        """For the run's metrics."""
        return asdict(self) | {"weights": list(self.weights), "weights_before": list(self.weights_before)}


def tune(
    model: NoisyChannelModel,
    pairs: Sequence[Pair],
    *,
    metric: str | None = None,
    rounds: int = 6,
    nbest: int = 50,
    say: Callable[[str], None] = print,
) -> Tuning:
    """Finds weights on growing lists of candidates and leaves the best of them in the model.

    Every round searches with the current weights and adds what it finds to the lists. It ends when a search finds
    nothing new, or weights come up again; the weights whose own search did best are kept.
    """
    name = metric or ("accuracy" if "bleu" not in fitting_measures(model.recipe.data) else "bleu")
    if name not in fitting_measures(model.recipe.data):
        raise RecipeError(f"--metric {name}: expected one of {', '.join(fitting_measures(model.recipe.data))}")
    pools: Pools = [{} for _ in pairs]
    tried: list[tuple[float, Weights]] = []
    weights = model.weights
    for number in range(1, rounds + 1):
        model.weights = weights
        fresh, outputs = _search(model, pairs, pools, nbest)
        value = score_outputs(outputs, [name])[name].value
        tried.append((value, weights))
        say(f"round {number}: {name} {value:.2f} with {_shown(weights)}, {fresh:,} new candidates")
        if not fresh or number == rounds:
            break
        weights = _weigh(model, pairs, pools, name, weights)
        if weights in (before for _, before in tried):
            break
    sign = -1 if name in LOWER_IS_BETTER else 1
    after, model.weights = max(tried, key=lambda pair: sign * pair[0])
    return Tuning(name, tried[0][0], after, tried[0][1], model.weights, len(tried))


def save_tuning(found: Tuning, recipe: Recipe, run: RunFolder) -> None:
    """Writes the weights that were found into the run, and how they were found, in one change."""
    search = recipe.search.model_copy(update={"weights": tuple(found.weights)})
    with run.changed() as new:
        new.save_recipe(recipe.model_copy(update={"search": search}))
        new.save_metrics(run.metrics() | {"tuned": found.as_json()})


def _search(model: NoisyChannelModel, pairs: Sequence[Pair], pools: Pools, nbest: int) -> tuple[int, Outputs]:
    """How many candidates were new, and the best output of every pair beside its reference."""
    predictions = model.predict([Source(pair.source, pair.features) for pair in pairs], nbest=nbest)
    fresh = 0
    for pool, prediction in zip(pools, predictions, strict=True):
        for candidate in prediction.nbest:
            fresh += candidate.tokens not in pool
            pool.setdefault(candidate.tokens, candidate)
    return fresh, Outputs.of(
        model.codec.target, [each.tokens for each in predictions], [[pair.target] for pair in pairs]
    )


def _weigh(model: NoisyChannelModel, pairs: Sequence[Pair], pools: Pools, name: str, weights: Weights) -> Weights:
    """The weights that do best on the lists."""
    lists = [list(pool.values()) for pool in pools]
    width = max(map(len, lists))
    parts = np.full((len(lists), width, 4), -np.inf)
    for row, candidates in zip(parts, lists, strict=True):
        row[: len(candidates)] = [candidate.parts for candidate in candidates]
    gain = _gains(lists, pairs, model.codec.target, name, width)
    found = find_weights(
        table := CandidateLists(parts, gain), np.array(weights), quality=_quality(model, pairs, lists, table, name)
    )
    return Weights(*(round(float(weight), 4) for weight in found))


def _gains(
    lists: Sequence[Sequence[Candidate]], pairs: Sequence[Pair], target: TextCodec, name: str, width: int
) -> Array:
    """How good each candidate is by itself, on the scale of the metric's mean where it is one."""
    measure = SHARED_MEASURES.get(name, SHARED_MEASURES["edit_distance"])
    lower_is_better = name in LOWER_IS_BETTER or name not in SHARED_MEASURES
    flat = [candidate for candidates in lists for candidate in candidates]
    repeated = [pair for pair, candidates in zip(pairs, lists, strict=True) for _ in candidates]
    shares = measure(_outputs(flat, repeated, target))
    worth = shares.scale * shares.parts * (-1.0 if lower_is_better else 1.0)
    gains = np.zeros((len(lists), width))
    start = 0
    for row, candidates in zip(gains, lists, strict=True):
        row[: len(candidates)] = worth[start : start + len(candidates)]
        start += len(candidates)
    return gains


def _quality(
    model: NoisyChannelModel,
    pairs: Sequence[Pair],
    lists: Sequence[Sequence[Candidate]],
    table: CandidateLists,
    name: str,
) -> Callable[[Array], float] | None:
    """The metric of what weights pick, for metrics that are no means over outputs."""
    if name in SHARED_MEASURES:
        return None

    def quality(weights: Array) -> float:
        picked = [candidates[place] for candidates, place in zip(lists, table.pick(weights), strict=True)]
        return score_outputs(_outputs(picked, pairs, model.codec.target), [name])[name].value

    return quality


def _outputs(candidates: Sequence[Candidate], pairs: Sequence[Pair], target: TextCodec) -> Outputs:
    return Outputs.of(target, [candidate.tokens for candidate in candidates], [[pair.target] for pair in pairs])


def _shown(weights: Weights) -> str:
    return ", ".join(f"{weight:g}" for weight in weights)
