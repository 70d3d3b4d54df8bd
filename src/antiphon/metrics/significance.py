"""Paired bootstrap test of the difference between two systems.

Outputs are drawn with replacement a thousand times, the same ones for both systems. The interval of a value holds the
middle 95 % of its resampled values. The p-value of a difference is the share of resamples in which the difference,
moved to mean zero, is at least as far from zero as the one observed (two-sided, one added to both counts).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray
from sacrebleu.significance import PairedTest, Result

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


def compare_systems(systems: Sequence[Outputs], name: str, seed: int = 1) -> list[ComparedScore]:
    """One metric of every system, each compared with the first."""
    if name in RATIO_METRICS:
        return bootstrap([RATIO_METRICS[name](outputs) for outputs in systems], seed)
    return _bootstrap_corpus_metric(systems, name)


def bootstrap(systems: Sequence[RatioStats], seed: int = 1) -> list[ComparedScore]:
    """One metric of every system, given by its ratio statistics, each compared with the first."""
    blocks = [[_resample(stats, drawn) for stats in systems] for drawn in _draws(len(systems[0].parts), seed)]
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


def _resample(stats: RatioStats, drawn: NDArray[np.int64]) -> NDArray[np.float64]:
    parts, wholes = stats.parts[drawn].sum(1), stats.wholes[drawn].sum(1)
    values: NDArray[np.float64] = stats.scale * parts / np.maximum(1.0, wholes)
    return values


def _p_value(differences: NDArray[np.float64], observed: float) -> float:
    as_extreme = int((np.abs(differences - differences.mean()) >= abs(observed)).sum())
    return (as_extreme + 1) / (len(differences) + 1)


def _bootstrap_corpus_metric(systems: Sequence[Outputs], name: str) -> list[ComparedScore]:
    """sacrebleu's own paired bootstrap."""
    streams = cast(list[list[str]], reference_streams(systems[0]))
    named: list[tuple[str, Sequence[str]]] = [(str(n), outputs.predicted) for n, outputs in enumerate(systems)]
    metric = corpus_metric(name)
    test = PairedTest(named, {name: metric}, streams, test_type="bs", n_samples=SAMPLES)
    _, results = test()
    signature = str(metric.get_signature())
    first, *others = cast(list[Result], next(found for title, found in results.items() if title != "System"))
    # sacrebleu counts strictly greater differences, which would make equal systems differ.
    p_values = [None, *(1.0 if other.score == first.score else other.p_value for other in others)]
    compared = []
    for result, p_value in zip([first, *others], p_values, strict=True):
        middle, reach = float(result.mean or result.score), float(result.ci or 0.0)
        low, high = max(0.0, middle - reach), min(100.0, middle + reach)
        compared.append(ComparedScore(Score(result.score, signature), low, high, p_value))
    return compared
