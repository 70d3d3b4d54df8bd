"""N-best weight search: finds candidates with the weights of a noisy channel, better weights on them, and so on.

Weights pick from every list the candidate with the highest weighted sum. ``find_weights`` draws weights at random
around the best so far, all or one at a time, in ever smaller steps, and at first also evenly within reach; among
weights that pick equally good outputs, those that give good candidates a higher probability win, since they generalise
better.

At the end the best weights are compared with the direct model alone, which includes its suffix rules: unless they are
better on the pairs, it stays alone, with the weights 1, 0, 0, 0. A direct model with the weight 0 keeps it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.api.model import NoisyChannelModel
from antiphon.exceptions import RecipeError
from antiphon.metrics.output_metrics import LOWER_IS_BETTER, Outputs, score_outputs
from antiphon.metrics.output_statistics import Rows, SelectionStats
from antiphon.recipe.schema import Recipe
from antiphon.runs.build import selection_metrics
from antiphon.runs.run_folder import RunFolder
from antiphon.terminal import Say
from antiphon.torch_free.codec import PairCodec
from antiphon.torch_free.hypothesis import Weights
from antiphon.torch_free.readers import Pair, Source

Array = NDArray[np.float64]


@dataclass(frozen=True)
class CandidateTable:
    """The candidates of every sentence: four scores, -inf where a list is shorter, statistics of a metric, and gain.

    ``metric`` is the value of a sum of statistics (``metrics/output_statistics.py``), ``gain`` the quality of each
    alone.
    """

    scores: Array
    statistics: Array
    gain: Array
    metric: Callable[[Array], float]

    def pick(self, weights: Array) -> NDArray[np.int64]:
        """The index of the candidate that the weights choose from every list."""
        chosen: NDArray[np.int64] = self._totals(weights).argmax(1)
        return chosen

    def value(self, weights: Array) -> float:
        """The metric of the chosen candidates."""
        chosen = np.take_along_axis(self.statistics, self.pick(weights)[:, None, None], 1)
        return self.metric(chosen.sum((0, 1)))

    def expected_gain(self, weights: Array) -> float:
        """The mean gain if candidates were drawn in proportion to their exponentiated scores."""
        totals = self._totals(weights)
        peak = totals.max(1, keepdims=True)
        mass = np.exp(totals - np.where(np.isfinite(peak), peak, 0.0))
        return float(((mass * self.gain).sum(1) / np.maximum(mass.sum(1), 1e-9)).mean())

    def _totals(self, weights: Array) -> Array:
        """The weighted sums, without scores that weigh nothing: 0 times -inf, of what a model cannot write, is NaN.

        The last score, of length, is -inf only where there is no candidate.
        """
        exists = np.isfinite(self.scores[:, :, -1])
        weighs = exists[:, :, None] & (weights != 0)
        weighed: Array = np.where(weighs, self.scores, 0.0) @ weights
        return np.where(exists, weighed, -np.inf)


@dataclass
class Candidates:
    """The candidates of one input: tokens, four feature scores, metric statistics and gain."""

    scores: dict[tuple[str, ...], tuple[float, ...]] = field(default_factory=dict)
    rows: list[Rows] = field(default_factory=list)
    gain: list[float] = field(default_factory=list)


class NBestLists:
    """The candidates found so far for every pair; the statistics of each are computed once."""

    def __init__(self, pairs: Sequence[Pair], codec: PairCodec, metric: str) -> None:
        self.pairs, self.codec, self.metric = pairs, codec, metric
        self.lists = [Candidates() for _ in pairs]
        self._value = SelectionStats.of(metric, self.outputs([])).value

    def add(self, found: Iterable[Sequence[tuple[tuple[str, ...], tuple[float, ...]]]]) -> int:
        """Adds tokens and scores for every pair; how many of the candidates were new.

        Of candidates with the same tokens the first one counts: unknown tokens may be copied from several places.
        """
        new = [
            (sentence, tokens, scores)
            for sentence, candidates in enumerate(found)
            for tokens, scores in dict(reversed(candidates)).items()
            if tokens not in self.lists[sentence].scores
        ]
        if new:
            outputs = self.outputs([(sentence, tokens) for sentence, tokens, _ in new])
            statistics = SelectionStats.of(self.metric, outputs)
            for (sentence, tokens, scores), row, gain in zip(new, statistics.rows, statistics.gain, strict=True):
                each = self.lists[sentence]
                each.scores[tokens] = scores
                each.rows.append(row)
                each.gain.append(float(gain))
        return len(new)

    def outputs(self, found: Sequence[tuple[int, Sequence[str]]]) -> Outputs:
        """Outputs for some of the pairs, by index, with their references and sources."""
        pairs = [self.pairs[sentence] for sentence, _ in found]
        sources = [self.codec.source.tokens(pair.source) for pair in pairs]
        return Outputs.of(
            self.codec.target, [tokens for _, tokens in found], [[pair.target] for pair in pairs], sources
        )

    def table(self) -> CandidateTable:
        """All lists as one padded table."""
        width = max(1, *(len(each.scores) for each in self.lists)) if self.lists else 1
        shape = len(self.lists), width
        depth = next((len(row) for each in self.lists for row in each.rows), 1)
        scores, statistics, gain = np.full((*shape, 4), -np.inf), np.zeros((*shape, depth)), np.zeros(shape)
        for sentence, each in enumerate(self.lists):
            if each.scores:
                count = len(each.scores)
                scores[sentence, :count] = list(each.scores.values())
                statistics[sentence, :count], gain[sentence, :count] = each.rows, each.gain
        return CandidateTable(scores, statistics, gain, self._value)


_TIE_BREAK_WEIGHT = 0.001
"""A weight so small that it only breaks ties."""
_FIRST_REACH = 0.5
"""How far the first weights found on lists may be from those tried, whose largest is 1."""
_MIN_WEIGHT = 0.0001
"""The lowest weight that rounding keeps above 0, so that it can grow again in the next round."""

_DIRECT = Weights(1.0, 0.0, 0.0, 0.0)
"""Weights with which a noisy channel answers as its direct model does alone."""
_IS_LENGTH = np.array([False, False, False, True])
"""Which of the four weights is that of the length."""
_DRAWS, _ROUNDS = 400, 6
"""Weights drawn in each round, and the number of rounds; the spread of the draws halves from round to round."""


@dataclass(frozen=True)
class Tuning:
    """The result: the metric of the direct model alone, before and after.

    It is measured as ``evaluate`` does.
    """

    metric: str
    direct: float
    before: float
    after: float
    weights_before: Weights
    weights: Weights
    rounds: int

    def as_json(self) -> dict[str, Any]:
        """The result as JSON, for the run's metrics."""
        return asdict(self) | {"weights": list(self.weights), "weights_before": list(self.weights_before)}


def start_lists(model: NoisyChannelModel, pairs: Sequence[Pair], metric: str | None) -> NBestLists:
    """Empty lists of candidates for a metric of the task; unset: BLEU for text, else accuracy."""
    possible = selection_metrics(model.recipe.data)
    name = metric or ("bleu" if "bleu" in possible else "accuracy")
    if name not in possible:
        raise RecipeError(f"--metric {name}: expected one of {', '.join(possible)}")
    return NBestLists(pairs, model.codec, name)


def tune(
    model: NoisyChannelModel,
    lists: NBestLists,
    *,
    rounds: int = 6,
    nbest: int = 50,
    say: Say = print,
) -> Tuning:
    """Optimises the weights on growing lists of candidates and sets the best ones in the model.

    Every round searches with the current weights and adds its candidates to the lists; the second one is led by the
    direct model, so that its candidates are among them. After it, weights are optimised near those whose own search
    scored best, and nearer whenever a search is worse: lists hold candidates that a search would miss. It ends when a
    search finds nothing new, or weights repeat. The result is never worse than the direct model alone.
    """
    sign = -1 if lists.metric in LOWER_IS_BETTER else 1
    tried: list[tuple[float, Weights]] = []
    weights, reach = _start(model), _FIRST_REACH
    for round_ in range(1, rounds + 1):
        model.weights = weights
        value, added = _search(model, lists, nbest)
        tried.append((value, weights))
        shown = ", ".join(f"{weight:g}" for weight in weights)
        say(f"round {round_}: {lists.metric} {value:.2f} with {shown}, {added:,} new candidates")
        if not added or round_ == rounds:
            break
        best = max(tried, key=lambda pair: sign * pair[0])[1]
        if round_ == 1 and weights.direct:
            weights = _led_by_direct(lists, weights)
        else:
            reach /= 2 if round_ > 2 and weights != best else 1
            weights = best_weights(lists, best, reach)
        if weights in (before for _, before in tried):
            break
    best = max(tried, key=lambda pair: sign * pair[0])[1]

    def evaluate(weights: Weights) -> float:
        model.weights = weights
        return _search(model, lists, nbest=1)[0]

    return choose(model, lists.metric, evaluate, tried[0][1], best, len(tried))


def _start(model: NoisyChannelModel) -> Weights:
    """The weights to start from: those of the model, unless they leave out all but its direct model."""
    return model.default_weights if model.weights.only_direct else model.weights


def choose(
    model: NoisyChannelModel,
    metric: str,
    evaluate: Callable[[Weights], float],
    before: Weights,
    best: Weights,
    rounds: int,
) -> Tuning:
    """The result, with the best of three in the model: direct model alone, weights found, weights before.

    Where the direct model had the weight 0, it only proposes, and does not become the whole model.
    """
    sign = -1 if metric in LOWER_IS_BETTER else 1
    values = {weights: evaluate(weights) for weights in (_DIRECT, best, before)}
    possible = [weights for weights in values if before.direct or weights != _DIRECT]
    model.weights = max(possible, key=lambda weights: sign * values[weights])
    return Tuning(metric, values[_DIRECT], values[before], values[model.weights], before, model.weights, rounds)


def save_tuning(found: Tuning, recipe: Recipe, run: RunFolder) -> None:
    """Writes the weights and the tuning result into the run, in one change."""
    search = recipe.search.model_copy(update={"weights": tuple(found.weights)})
    with run.changed() as new:
        new.save_recipe(recipe.model_copy(update={"search": search}))
        new.save_metrics(run.metrics() | {"tuned": found.as_json()})


def _search(model: NoisyChannelModel, lists: NBestLists, nbest: int) -> tuple[float, int]:
    """The metric of a search with the model's weights, and how many candidates it adds to the lists."""
    sources = [Source(pair.source, pair.features) for pair in lists.pairs]
    predictions = model.predict(sources, nbest=nbest, allow_unknown_features=True)
    outputs = lists.outputs([(index, each.tokens) for index, each in enumerate(predictions)])
    added = lists.add([[(each.tokens, each.parts) for each in prediction.nbest] for prediction in predictions])
    return score_outputs(outputs, [lists.metric])[lists.metric].value, added


def _led_by_direct(lists: NBestLists, weights: Weights) -> Weights:
    """Weights with which direct model and length decide, and other parts that have a weight only break ties."""
    channel, language_model = (
        _TIE_BREAK_WEIGHT if weight else 0.0 for weight in (weights.channel, weights.language_model)
    )
    start = Weights(1.0, channel, language_model, 0.0)
    return _rounded(find_weights(lists.table(), np.array(start), free=_IS_LENGTH), start)


def best_weights(lists: NBestLists, weights: Weights, reach: float = np.inf) -> Weights:
    """The best weights on the lists within reach of others."""
    return _rounded(find_weights(lists.table(), np.array(weights), reach=reach), weights)


def _rounded(found: NDArray[np.float64], start: Weights) -> Weights:
    """The weights, rounded; a part that had a weight keeps one, however small."""
    lowest = np.where(np.array(start) > 0, _MIN_WEIGHT, -np.inf)
    lowest[-1] = -np.inf
    return Weights(*(round(float(weight), 4) for weight in np.maximum(found, lowest)))


def find_weights(
    table: CandidateTable,
    start: Array,
    *,
    reach: float = np.inf,
    free: NDArray[np.bool_] | None = None,
) -> Array:
    """Weights at least as good on the lists as ``start``; weights that are 0 there stay 0, except the last.

    ``free`` says which weights may change. They differ from those of ``start``, scaled so that the largest of the
    models' weights is 1, by at most ``reach``, the last one, of length, by twice as much.
    """
    draw, start = np.random.default_rng(1), _scaled(start)
    is_length = np.arange(len(start)) == len(start) - 1
    free = ((start != 0) | is_length) & (True if free is None else free)
    best, value, gain = start, round(table.value(start), 9), table.expected_gain(start)
    for round_ in range(_ROUNDS):
        anywhere = [] if round_ or np.isinf(reach) else _anywhere(start, free, reach, draw)
        for candidate in [*anywhere, *_around(best, free, 2.0**-round_, draw)]:
            candidate = _within(_scaled(candidate), start, reach)
            found = round(table.value(candidate), 9)
            if found < value:
                continue
            expected = table.expected_gain(candidate)
            if (found, expected) > (value, gain):
                best, value, gain = candidate, found, expected
    return _scaled(best)


def _around(centre: Array, free: NDArray[np.bool_], spread: float, draw: np.random.Generator) -> list[Array]:
    """Weights near others: the last one, of length, moves by steps and may be negative, the rest by factors."""
    candidates = []
    for _ in range(_DRAWS):
        one_at_a_time = draw.random() < 0.5
        moved = free & (np.arange(len(centre)) == draw.integers(len(centre))) if one_at_a_time else free
        factors = np.exp(draw.normal(0.0, 1.5 * spread, len(centre)))
        candidate = np.where(moved, centre * factors, centre)
        candidate[-1] = centre[-1] + (draw.normal(0.0, 1.5 * spread) if moved[-1] else 0.0)
        candidates.append(candidate)
    return candidates


def _anywhere(centre: Array, free: NDArray[np.bool_], reach: float, draw: np.random.Generator) -> list[Array]:
    """Weights drawn evenly within reach of others, so that very small ones can grow."""
    low, high = (_within(np.full(len(centre), bound), centre, reach) for bound in (-np.inf, np.inf))
    return [np.where(free, draw.uniform(low, high), centre) for _ in range(_DRAWS)]


def _within(weights: Array, centre: Array, reach: float) -> Array:
    """The weights, or the nearest ones within reach of others; models' weights are never negative."""
    reaches = np.array([reach] * (len(centre) - 1) + [2 * reach])
    least = np.array([0.0] * (len(centre) - 1) + [-np.inf])
    near: Array = np.clip(weights, np.maximum(centre - reaches, least), centre + reaches)
    return near


def _scaled(weights: Array) -> Array:
    """The weights scaled so that the largest of the models' weights is 1."""
    scaled: Array = weights / max(weights[:-1].max(), 1e-9)
    return scaled
