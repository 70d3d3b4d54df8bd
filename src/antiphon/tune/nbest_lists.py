"""N-best lists: candidates with all their scores, collected over searches, and saved; and one table of them all."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.api import Prediction
from antiphon.exceptions import InputError
from antiphon.metrics.output_metrics import Outputs
from antiphon.metrics.output_statistics import Rows, SelectionStats
from antiphon.storage.atomic import write_atomically
from antiphon.terminal import count_of
from antiphon.torch_free.channel_weights import Weights
from antiphon.torch_free.codec import PairCodec
from antiphon.torch_free.files import read_lines
from antiphon.torch_free.readers import Pair

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
            statistics = self._statistics([(sentence, tokens) for sentence, tokens, _ in new])
            for (sentence, tokens, scores), row, gain in zip(new, statistics.rows, statistics.gain, strict=True):
                each = self.lists[sentence]
                each.scores[tokens] = scores
                each.rows.append(row)
                each.gain.append(float(gain))
        return len(new)

    def add_predictions(self, predictions: Sequence[Prediction]) -> int:
        """Adds the candidates of a noisy channel's predictions."""
        return self.add([[(each.tokens, each.parts) for each in prediction.nbest] for prediction in predictions])

    def _statistics(self, outputs: Sequence[tuple[int, tuple[str, ...]]]) -> SelectionStats:
        return SelectionStats.of(self.metric, self.outputs(outputs))

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

    def save(self, path: Path) -> None:
        """Writes a JSON object for every pair: source, reference, and each candidate with its four scores."""
        lines = []
        for pair, each in zip(self.pairs, self.lists, strict=True):
            candidates = [{"tokens": tokens, **Weights(*scores)._asdict()} for tokens, scores in each.scores.items()]
            shown = {"source": pair.source, "reference": pair.target, "candidates": candidates}
            lines.append(json.dumps(shown, ensure_ascii=False) + "\n")
        write_atomically(path, "".join(lines))

    def load(self, path: Path) -> None:
        """Adds what ``save`` wrote for the same pairs."""
        found = []
        for line_number, (line, pair) in enumerate(_with_pairs(path, self.pairs), 1):
            try:
                shown = json.loads(line)
                if (shown["source"], shown["reference"]) != (pair.source, pair.target):
                    raise ValueError("another pair")
                candidates = [(tuple(map(str, each["tokens"])), _scores(each)) for each in shown["candidates"]]
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise InputError(
                    f"{path}:{line_number}: no list of candidates for line {line_number} of the pairs ({error}), "
                    "expected what --save-lists wrote for them"
                ) from None
            found.append(candidates)
        self.add(found)


def _scores(candidate: Mapping[str, Any]) -> tuple[float, ...]:
    """The four scores of a saved candidate; minus infinity, of what a model cannot write, is one."""
    scores = tuple(float(candidate[name]) for name in Weights._fields)
    for name, score in zip(Weights._fields, scores, strict=True):
        if not score < math.inf:
            raise ValueError(f"{name} is {score}")
    return scores


def _with_pairs(path: Path, pairs: Sequence[Pair]) -> Iterable[tuple[str, Pair]]:
    lines = list(read_lines(path))
    if len(lines) != len(pairs):
        raise InputError(
            f"{path}: {count_of(len(lines), 'list')} of candidates, expected {len(pairs):,}, one for every pair"
        )
    return zip(lines, pairs, strict=True)
