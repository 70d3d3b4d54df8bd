"""Settings and results of a search."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from antiphon.data.batch import Batch
from antiphon.data.vocab import END, PAD, START, UNKNOWN
from antiphon.models.left_to_right import copies_unknown


def never_written(model: object, *, replace_unknown: bool = False) -> list[int]:
    """Tokens that a search never writes; the unknown one only if it is not replaced by a source token later."""
    return [PAD, START] if replace_unknown or copies_unknown(model) else [PAD, UNKNOWN, START]


def is_no_end(log_probs: Float[Tensor, "... V"]) -> Bool[Tensor, " V"]:
    """True at every token but the end symbol, to mask outputs that must end."""
    return torch.arange(log_probs.shape[-1], device=log_probs.device) != END


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One output for one input.

    ``tokens`` are target ids, the end symbol last, and ``token_log_probs`` the log probability of each, given those
    before it. ``log_prob`` is their sum, ``log p(y | x)``; of a search over paths, that of the best path. ``score`` is
    what outputs are ranked by. ``alignment`` holds the input position at which each token was written, counted from 0;
    it is empty unless requested. ``features`` are the scores that a noisy channel weights.
    """

    tokens: tuple[int, ...]
    score: float
    log_prob: float
    token_log_probs: tuple[float, ...] = ()
    alignment: tuple[int, ...] = ()
    features: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamSettings:
    """Settings of a beam search.

    ``proposals`` is how many extensions a noisy channel rescores before it keeps ``beam`` of them.
    ``threshold`` prunes whatever is more than this many nats behind the best hypothesis of its sentence;
    ``commit_margin``: a stream writes the prefix shared by all outputs at most so many nats behind the best;
    outputs may be ``max_length_ratio`` times as long as the input, and ``max_length_extra`` tokens more. Finished
    outputs are ranked by their log probability with length bias and normalisation. With ``replace_unknown``, unknown
    tokens are written, to be replaced later (``decode/unknown_words.py``).
    """

    beam: int
    proposals: int
    nbest: int = 1
    threshold: float
    commit_margin: float
    max_length_ratio: float
    max_length_extra: int
    length_normalisation: float
    length_bias: float
    replace_unknown: bool = False

    def length_limits(self, source_lengths: Tensor) -> Tensor:
        """How many tokens, end symbol counted, the output of each source may have."""
        return (source_lengths * self.max_length_ratio).long() + self.max_length_extra

    def normalise(self, log_prob: Tensor, length: Tensor | int) -> Tensor:
        """``(log p + length_bias * length) / length ** length_normalisation``."""
        if self.length_bias:
            log_prob = log_prob + self.length_bias * length
        return log_prob / length**self.length_normalisation if self.length_normalisation else log_prob

    def upper_bound(self, log_prob: Tensor, length: Tensor | int, limits: Tensor) -> Tensor:
        """The best score that unfinished hypotheses of this length can still reach, since log p never rises.

        Without a bias, ``s / n ** a`` with ``s <= 0`` is highest at the limit.

        As a function of the final length ``n``, ``(s + b n) / n ** a`` with ``s <= 0`` is highest at one of the ends,
        or where its derivative is 0: at ``n = a s / (b (1 - a))``.
        """
        if not self.length_normalisation and self.length_bias <= 0:
            return self.normalise(log_prob, length + 1)
        if not self.length_bias:
            return self.normalise(log_prob, limits.to(log_prob.dtype))
        shortest = torch.as_tensor(length + 1, dtype=log_prob.dtype, device=log_prob.device).expand_as(log_prob)
        longest = torch.maximum(limits.to(log_prob.dtype), shortest)
        bound = torch.maximum(self.normalise(log_prob, shortest), self.normalise(log_prob, longest))
        slope = self.length_bias * (1 - self.length_normalisation)
        if not slope:
            return bound
        turning_point = (self.length_normalisation * log_prob / slope).clamp(shortest, longest)
        return torch.maximum(bound, self.normalise(log_prob, turning_point))


Search = Callable[[Any, Batch, BeamSettings], list[list[Hypothesis]]]
"""Finds the best outputs of each input of a batch."""
