"""Outputs of two searches, one from the left and one from the right, judged by both models.

    p(y | x) = ( p_forward(y | x) + p_backward(reverse(y) | reverse(x)) ) / 2

The best outputs of both searches are the candidates; their probabilities are exact.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar

import numpy as np

from antiphon.torch_free.hypothesis import BeamSettings, Hypothesis
from antiphon.torch_free.vocab import END

Tokens = tuple[int, ...]
Forward = Callable[[Sequence[int], Sequence[Tokens]], Sequence[Hypothesis]]
"""Outputs, end symbols last, of the sources with these indices, as hypotheses of the left-to-right model."""
Backward = Callable[[Sequence[int], Sequence[Tokens]], Sequence[float]]
"""The log probabilities of such outputs by the right-to-left model."""
_CANDIDATES = 5
"""Outputs of each search that both models judge, where the beam is that wide."""
T = TypeVar("T")


def with_candidates(settings: BeamSettings) -> BeamSettings:
    """The settings of each search, which gives enough outputs."""
    return replace(settings, nbest=max(settings.nbest, min(settings.beam, _CANDIDATES)))


def best_of_both(
    found: Sequence[Sequence[Hypothesis]],
    mirrored: Sequence[Sequence[Hypothesis]],
    forward: Forward,
    backward: Backward,
    settings: BeamSettings,
) -> list[list[Hypothesis]]:
    """The ``nbest`` best outputs of each source, given those from the left, and those from the right as it reads them.

    The probabilities of their tokens remain those from the left.
    """
    known = [{each.tokens for each in some} for some in found]
    turned = [[(*each.tokens[-2::-1], END) for each in some] for some in mirrored]
    added = [[each for each in some if each not in ours] for some, ours in zip(turned, known, strict=True)]
    more = _of_sources(added, forward)
    judged = mean_of_both([[*ours, *others] for ours, others in zip(found, more, strict=True)], backward)
    ranked = [[_ranked(each, settings) for each in some] for some in judged]
    return [sorted(some, key=lambda each: -each.score)[: settings.nbest] for some in ranked]


def mean_of_both(found: Sequence[Sequence[Hypothesis]], backward: Backward) -> list[list[Hypothesis]]:
    """Hypotheses of the left-to-right model for each source, with the probability of both models."""

    def judge(sources: Sequence[int], outputs: Sequence[Hypothesis]) -> list[Hypothesis]:
        return with_both(outputs, backward(sources, [each.tokens for each in outputs]))

    return _of_sources(found, judge)


def with_both(outputs: Sequence[Hypothesis], backward: Sequence[float]) -> list[Hypothesis]:
    """Hypotheses of the left-to-right model with the probability of both; the other's log probabilities are given."""
    both = [log_mean(each.log_prob, theirs) for each, theirs in zip(outputs, backward, strict=True)]
    return [replace(each, score=log_prob, log_prob=log_prob) for each, log_prob in zip(outputs, both, strict=True)]


def log_mean(one: float, other: float) -> float:
    """The log of the mean of two probabilities, given their logs."""
    return float(np.logaddexp(one, other) - np.log(2))


def _ranked(output: Hypothesis, settings: BeamSettings) -> Hypothesis:
    return replace(output, score=settings.search_score(output.log_prob, len(output.tokens)))


def _of_sources(
    outputs: Sequence[Sequence[T]], judge: Callable[[Sequence[int], Sequence[T]], Sequence[Hypothesis]]
) -> list[list[Hypothesis]]:
    """What ``judge`` makes of the outputs of all sources, given the index of the source of each, in one call."""
    sources = [b for b, some in enumerate(outputs) for _ in some]
    judged: list[list[Hypothesis]] = [[] for _ in outputs]
    for b, each in zip(sources, judge(sources, list(chain(*outputs))) if sources else (), strict=True):
        judged[b].append(each)
    return judged
