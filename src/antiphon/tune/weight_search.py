"""Random search for the weights of feature scores on n-best lists.

Weights pick from every list the candidate with the highest weighted sum. The search draws weights at random around the
best so far, all or one at a time, in ever smaller steps, and at first also evenly within reach; among weights that
pick equally good outputs, those that give good candidates a higher probability win, since they generalise better.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_DRAWS, _ROUNDS = 400, 6
"""Weights drawn in each round, and the number of rounds; the spread of the draws halves from round to round."""


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


def find_weights(
    table: CandidateTable,
    start: Array,
    *,
    reach: float = np.inf,
    free: NDArray[np.bool_] | None = None,
    seed: int = 1,
) -> Array:
    """Weights at least as good on the lists as ``start``; weights that are 0 there stay 0, except the last.

    ``free`` says which weights may change. They differ from those of ``start``, scaled so that the largest of the
    models' weights is 1, by at most ``reach``, the last one, of length, by twice as much.
    """
    draw, start = np.random.default_rng(seed), _scaled(start)
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
