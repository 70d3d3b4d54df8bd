"""Whether two systems differ: paired bootstrap over the same outputs of both.

Outputs are drawn with replacement some thousand times, the same ones for both systems. The confidence interval of a value
holds the middle 95 % of its resampled values; the p-value of a difference is the share of resamples in which it, moved to
mean zero, is at least as far from zero as the one observed (two-sided, one added to both counts).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sacrebleu.significance import PairedTest

from antiphon.metrics.generation import CORPUS_MEASURES, SHARED_MEASURES, Outputs, Score, Shares, reference_streams

SAMPLES = 1000


@dataclass(frozen=True)
class Comparison:
    """One measure of one system: its value, its 95 % interval, and its p-value against the first system."""

    score: Score
    low: float
    high: float
    p_value: float | None


def compare_systems(systems: Sequence[Outputs], names: Sequence[str], seed: int = 1) -> dict[str, list[Comparison]]:
    """Each named measure of every system, compared with the first one."""
    compared = {}
    for name in names:
        if name in SHARED_MEASURES:
            compared[name] = _bootstrap([SHARED_MEASURES[name](outputs) for outputs in systems], seed)
        elif name in CORPUS_MEASURES:
            compared[name] = _sacrebleu_bootstrap(systems, name)
    return compared


def _bootstrap(systems: Sequence[Shares], seed: int) -> list[Comparison]:
    number = len(systems[0].parts)
    drawn = np.random.default_rng(seed).integers(number, size=(SAMPLES, number))
    resampled = [_resample(shares, drawn) for shares in systems]
    return [
        Comparison(
            shares.score(),
            *(float(bound) for bound in np.percentile(values, [2.5, 97.5])),
            None if place == 0 else _p_value(values - resampled[0], shares.score().value - systems[0].score().value),
        )
        for place, (shares, values) in enumerate(zip(systems, resampled, strict=True))
    ]


def _resample(shares: Shares, drawn: NDArray[np.int64]) -> NDArray[np.float64]:
    values: NDArray[np.float64] = shares.scale * shares.parts[drawn].sum(1) / np.maximum(1.0, shares.wholes[drawn].sum(1))
    return values


def _p_value(differences: NDArray[np.float64], observed: float) -> float:
    as_extreme = int((np.abs(differences - differences.mean()) >= abs(observed)).sum())
    return (as_extreme + 1) / (len(differences) + 1)


def _sacrebleu_bootstrap(systems: Sequence[Outputs], name: str) -> list[Comparison]:
    import sacrebleu

    metric = sacrebleu.BLEU(tokenize="none") if name == "bleu" else sacrebleu.CHRF()
    references = reference_streams(systems[0])
    metric = type(metric)(**({"tokenize": "none"} if name == "bleu" else {}), references=references)
    test = PairedTest(
        [(str(place), list(outputs.predicted)) for place, outputs in enumerate(systems)],
        {metric.name: metric},
        references=None,
        test_type="bs",
        n_samples=SAMPLES,
    )
    signatures, results = test()
    signature = str(next(iter(signatures.values())))
    return [
        Comparison(Score(result.score, signature), result.mean - result.ci, result.mean + result.ci, result.p_value)
        for result in results[metric.name]
    ]
