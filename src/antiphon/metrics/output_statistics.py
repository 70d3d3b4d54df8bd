"""What each output adds to a metric, used twice: values of any selection of outputs, and a paired bootstrap test.

Sufficient statistics of an output are a vector, and the metric is a function of their sum. So they are computed once
for every candidate, however often the selection changes.

For the test, outputs are drawn with replacement a thousand times, the same ones for both systems. The interval of a
value holds the middle 95 % of its resampled values. The p-value of a difference is the share of resamples in which the
difference, moved to mean zero, is at least as far from zero as the one observed (two-sided, one added to both counts).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import sacrebleu
from numpy.typing import NDArray

from antiphon.metrics.output_metrics import LOWER_IS_BETTER, CorpusStats, Outputs, RatioStats, Score, statistics_of

Rows = NDArray[np.float64]
SAMPLES = 1000
_MAX_DRAWN = 2**20
"""Outputs drawn at once: 8 MiB of indices, and as much of values."""


@dataclass(frozen=True)
class SelectionStats:
    """A row for every output, and the metric of a sum of rows; higher is better.

    ``gain`` is the quality of each single output, on the scale of the metric if that is a mean.
    """

    rows: Rows
    value: Callable[[Rows], float]
    gain: Rows

    @classmethod
    def of(cls, name: str, outputs: Outputs) -> "SelectionStats":
        """The statistics of a metric; chrF is taken as the mean over outputs, the gain of BLEU is smoothed."""
        stats = statistics_of(name, outputs)
        if isinstance(stats, RatioStats):
            return cls._of_ratio(stats.parts, stats.wholes, -stats.scale if name in LOWER_IS_BETTER else stats.scale)
        smoothed = sacrebleu.BLEU(tokenize="none", force=True, effective_order=True)
        single = CorpusStats(stats.rows, smoothed) if name == "bleu" else stats
        scores = np.array([single.value(row) for row in stats.rows])
        return cls(stats.rows, stats.value, scores) if name == "bleu" else cls._of_ratio(scores, np.ones(len(scores)))

    @classmethod
    def _of_ratio(cls, parts: Rows, wholes: Rows, scale: float = 1.0) -> "SelectionStats":
        rows = np.stack([parts, wholes], -1)
        return cls(rows, lambda total: float(scale * total[0] / max(1.0, total[1])), scale * parts)


@dataclass(frozen=True)
class ComparedScore:
    """One metric of one system: its value, its 95 % interval, and its p-value against the first system."""

    score: Score
    low: float
    high: float
    p_value: float | None


def compare_systems(systems: Sequence[Outputs], name: str, seed: int = 1) -> list[ComparedScore]:
    """One metric of every system, each compared with the first."""
    return bootstrap([statistics_of(name, outputs) for outputs in systems], seed)


def bootstrap(systems: Sequence[RatioStats | CorpusStats], seed: int = 1) -> list[ComparedScore]:
    """One metric of every system, given by what each output adds to it, each compared with the first."""
    blocks = [[stats.resample(drawn) for stats in systems] for drawn in _draws(len(systems[0]), seed)]
    resampled = [np.concatenate(values) for values in zip(*blocks, strict=True)]
    scores = [stats.score() for stats in systems]
    compared = []
    for index, (score, values) in enumerate(zip(scores, resampled, strict=True)):
        low, high = np.percentile(values, [2.5, 97.5])
        p_value = _p_value(values - resampled[0], score.value - scores[0].value) if index else None
        compared.append(ComparedScore(score, float(low), float(high), p_value))
    return compared


def _draws(outputs: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Indices of the outputs of every sample, one row each, in chunks of bounded size."""
    generator = np.random.default_rng(seed)
    at_once = max(1, _MAX_DRAWN // max(1, outputs))
    for first in range(0, SAMPLES, at_once):
        yield generator.integers(outputs, size=(min(at_once, SAMPLES - first), outputs))


def _p_value(differences: NDArray[np.float64], observed: float) -> float:
    as_extreme = int((np.abs(differences - differences.mean()) >= abs(observed)).sum())
    return (as_extreme + 1) / (len(differences) + 1)
