"""Delay metrics of online decoding.

``D_i`` is how many source tokens had been read when target token ``i`` was written; ``|X|``, ``|Y|`` and ``|R|`` are
the lengths of source, output and reference::

    AL   = 1/t sum over i <= t of D_i - (i-1) |X|/|R|           t the first i with D_i >= |X|, else |Y|
    LAAL = the same with max(|R|, |Y|) instead of |R|
    AP   = sum of D_i / (|X| |R|)
    DAL  = 1/|Y| sum of D'_i - (i-1)/g                          D'_i = max(D_i, D'_{i-1} + 1/g), g = |Y|/|X|

All but AP count source tokens; waiting for the whole input costs an AL of about ``|X|``.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from antiphon.metrics.output_metrics import Score


class Delays(NamedTuple):
    """When the tokens of one output were written, and how long its source and its reference are."""

    read: Sequence[int]
    source_length: int
    reference_length: int


def average_lagging(delays: Delays) -> float:
    """AL: tokens behind an ideal writer that keeps pace with the source."""
    return _lagging(delays, delays.reference_length)


def length_adaptive_average_lagging(delays: Delays) -> float:
    """LAAL: AL that does not reward outputs longer than the reference."""
    return _lagging(delays, max(delays.reference_length, len(delays.read)))


def average_proportion(delays: Delays) -> float:
    """AP: the mean part of the source that had been read, per reference token."""
    return sum(delays.read) / (delays.source_length * delays.reference_length)


def differentiable_average_lagging(delays: Delays) -> float:
    """DAL: AL over all tokens, where every token takes its time to be written."""
    pace = delays.source_length / len(delays.read)
    total, before = 0.0, float("-inf")
    for index, read in enumerate(delays.read):
        before = max(read, before + pace)
        total += before - index * pace
    return total / len(delays.read)


def _lagging(delays: Delays, length: int) -> float:
    read = delays.read
    counted = next((n for n, value in enumerate(read, 1) if value >= delays.source_length), len(read))
    pace = delays.source_length / length
    return sum(value - index * pace for index, value in enumerate(read[:counted])) / counted


DELAY_METRICS = {
    "AL": average_lagging,
    "LAAL": length_adaptive_average_lagging,
    "AP": average_proportion,
    "DAL": differentiable_average_lagging,
}


def score_delays(outputs: Sequence[Delays]) -> dict[str, Score]:
    """Every delay metric, averaged over outputs; those with an empty source, output or reference are skipped."""
    timed = [delays for delays in outputs if len(delays.read) and delays.source_length and delays.reference_length]
    return {
        name: Score(float(np.mean([metric(delays) for delays in timed] or [0.0])), "source tokens|mean per output")
        for name, metric in DELAY_METRICS.items()
    }
