"""Weights of a combination, found on lists of candidates with their parts.

A choice of weights picks from every list the candidate with the highest weighted sum. The search draws weights at
random around the best so far, all or one at a time, in ever smaller steps; among weights that pick equally good
outputs, those that give good candidates more of the probability mass win, since they are safer on other data.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_DRAWS, _ROUNDS = 400, 6


@dataclass(frozen=True)
class CandidateLists:
    """Parts ``(S, N, P)`` of the candidates of every sentence, -inf where a list is shorter, and how good each is.

    ``gain`` is what picking a candidate is worth, higher for better, on the scale of the metric's mean.
    """

    parts: Array
    gain: Array

    def pick(self, weights: Array) -> NDArray[np.int64]:
        """The place of the candidate that the weights choose from every list."""
        places: NDArray[np.int64] = self._scores(weights).argmax(1)
        return places

    def value(self, weights: Array) -> float:
        """The mean gain of what the weights choose."""
        return float(np.take_along_axis(self.gain, self.pick(weights)[:, None], 1).mean())

    def expected_value(self, weights: Array) -> float:
        """The mean gain if candidates were drawn in proportion to their exponentiated scores."""
        scores = self._scores(weights)
        mass = np.exp(scores - scores.max(1, keepdims=True))
        return float(((mass * self.gain).sum(1) / mass.sum(1)).mean())

    def _scores(self, weights: Array) -> Array:
        exists = np.isfinite(self.parts[:, :, -1])
        weighed = np.where(weights == 0, 0.0, np.where(exists[:, :, None], self.parts, 0.0) * weights).sum(2)
        return np.where(exists, weighed, -np.inf)


def find_weights(
    lists: CandidateLists, start: Array, *, seed: int = 1, quality: Callable[[Array], float] | None = None
) -> Array:
    """Weights at least as good on the lists as ``start``; parts that weigh 0 there stay out, but for the last one.

    ``quality`` replaces the mean gain for metrics that are no means, such as BLEU.
    """
    value = quality or lists.value

    def rank(weights: Array) -> tuple[float, float]:
        return round(value(weights), 9), lists.expected_value(weights)

    draw = np.random.default_rng(seed)
    free = (start != 0) | (np.arange(len(start)) == len(start) - 1)
    best, best_rank = start, rank(start)
    for number in range(_ROUNDS):
        for candidate in _around(best, free, 2.0**-number, draw):
            found = rank(candidate)
            if found > best_rank:
                best, best_rank = candidate, found
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


def _scaled(weights: Array) -> Array:
    """The same choice with the largest of the models' weights at 1."""
    scaled: Array = weights / max(weights[:-1].max(), 1e-9)
    return scaled
