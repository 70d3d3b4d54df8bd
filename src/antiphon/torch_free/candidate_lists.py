"""Lists of candidates: each text once, or as many as cover a probability."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from antiphon.torch_free.results import Candidate

_NEGLIGIBLE = 1e-6
"""A candidate that adds less probability than this is left out."""


def merge_equal_texts(candidates: Sequence[Candidate], length_normalisation: float) -> list[Candidate]:
    """The candidates, best first, each text once.

    Different tokens may make the same text, and so may a word of the vocabulary and its copy. Probabilities of equal
    texts are added, and tokens, alignment and parts are those of the best. Of a noisy channel, whose scores are not
    probabilities, the best is kept.
    """
    if len({each.text for each in candidates}) == len(candidates):
        return list(candidates)
    merged: dict[str, Candidate] = {}
    for each in sorted(candidates, key=lambda candidate: -candidate.score):
        best = merged.get(each.text)
        merged[each.text] = each if best is None else _add(best, each, length_normalisation)
    return sorted(merged.values(), key=lambda candidate: -candidate.score)


def _add(best: Candidate, other: Candidate, length_normalisation: float) -> Candidate:
    """The best candidate with the probability of both."""
    if best.parts or best.log_probability is None or other.log_probability is None:
        return best
    total = float(np.logaddexp(best.log_probability, other.log_probability))
    length = len(best.tokens) + 1
    gain = (total - best.log_probability) / length**length_normalisation
    return replace(best, score=best.score + gain, log_probability=total)


def total_probability(candidates: Sequence[Candidate]) -> float:
    """The probability of all candidates together."""
    return sum(each.probability or 0.0 for each in candidates)


def covering(candidates: Sequence[Candidate], mass: float) -> list[Candidate]:
    """The most probable candidates whose probabilities sum to ``mass``; if the sum is lower, all that add to it."""
    by_probability = sorted(candidates, key=lambda each: -(each.log_probability or 0.0))
    before = [0.0, *accumulate(each.probability or 0.0 for each in by_probability)]
    needed = [each for each, covered in zip(by_probability, before, strict=False) if covered < mass]
    return [each for n, each in enumerate(needed) if not n or (each.probability or 0.0) > _NEGLIGIBLE]
