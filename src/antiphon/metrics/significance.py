"""Paired bootstrap test of the difference between two systems.

Outputs are drawn with replacement a thousand times, the same ones for both systems. The interval of a value holds the
middle 95 % of its resampled values. The p-value of a difference is the share of resamples in which the difference,
moved to mean zero, is at least as far from zero as the one observed (two-sided, one added to both counts).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import sacrebleu
from numpy.typing import NDArray

from antiphon.metrics.output_metrics import RATIO_METRICS, Outputs, RatioStats, Score, corpus_metric, reference_streams

SAMPLES = 1000
_MAX_DRAWN = 2**20
"""Outputs drawn at once: 8 MiB of indices, and as much of values."""


@dataclass(frozen=True)
class ComparedScore:
    """One metric of one system: its value, its 95 % interval, and its p-value against the first system."""

    score: Score
    low: float
    high: float
    p_value: float | None


@dataclass(frozen=True)
class _CorpusStats:
    """BLEU or chrF, and what each output adds to the counts that sacrebleu computes it from."""

    rows: NDArray[np.float64]
    metric: sacrebleu.BLEU | sacrebleu.CHRF

    def score(self) -> Score:
        """The metric over all outputs."""
        return Score(self._value(self.rows.sum(0)), str(self.metric.get_signature()))

    def resample(self, drawn: NDArray[np.int64]) -> NDArray[np.float64]:
        """The metric of each row of indices of outputs."""
        return np.array([self._value(self.rows[indices].sum(0)) for indices in drawn])

    def _value(self, counts: NDArray[np.float64]) -> float:
        return float(self.metric._compute_score_from_stats([int(count) for count in counts]).score)

    def __len__(self) -> int:
        return len(self.rows)


def _stats_of(name: str, outputs: Outputs) -> RatioStats | _CorpusStats:
    if name in RATIO_METRICS:
        return RATIO_METRICS[name](outputs)
    metric, streams = corpus_metric(name), cast(list[list[str]], reference_streams(outputs))
    return _CorpusStats(np.array(metric._extract_corpus_statistics(outputs.predicted, streams), float), metric)


def compare_systems(systems: Sequence[Outputs], name: str, seed: int = 1) -> list[ComparedScore]:
    """One metric of every system, each compared with the first."""
    return bootstrap([_stats_of(name, outputs) for outputs in systems], seed)


def bootstrap(systems: Sequence[RatioStats | _CorpusStats], seed: int = 1) -> list[ComparedScore]:
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
