"""Settings and results of a search."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from antiphon.data.vocab import UNKNOWN

if TYPE_CHECKING:
    from antiphon.data.batch import Batch


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

    def with_copies(self, positions: Sequence[int], size: int) -> "Hypothesis":
        """The same with copies of the source words at some positions instead of unknown tokens.

        The copy of the word at position ``i`` has the id ``size + i``; ``size`` is that of the target vocabulary.
        """
        pairs = zip(self.tokens, positions, strict=False)
        return replace(self, tokens=tuple(size + position if token == UNKNOWN else token for token, position in pairs))


def have_unknown(found: list[list[Hypothesis]]) -> bool:
    """Whether an output has unknown tokens, which need an alignment to be copied."""
    return any(UNKNOWN in hypothesis.tokens for hypotheses in found for hypothesis in hypotheses)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamSettings:
    """Settings of a beam search.

    ``proposals`` is how many extensions a noisy channel rescores before it keeps ``beam`` of them.
    ``threshold`` prunes whatever is more than this many nats behind the best hypothesis of its sentence;
    ``commit_margin``: a stream writes the prefix shared by all outputs at most this many nats behind the best;
    outputs may be ``max_length_ratio`` times as long as the input, and ``max_length_extra`` tokens more. Finished
    outputs are ranked by their log probability with length bias and normalisation. With ``replace_unknown``, unknown
    tokens are written, to be replaced later (``decode/unknown_words.py``). Methods take tensors or arrays of numpy.
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

    def length_limits(self, source_lengths: Any) -> Any:
        """How many tokens, end symbol counted, the output of each source may have; whole numbers."""
        return source_lengths * self.max_length_ratio // 1 + self.max_length_extra

    def normalise(self, log_prob: Any, length: Any) -> Any:
        """``(log p + length_bias * length) / length ** length_normalisation``."""
        if self.length_bias:
            log_prob = log_prob + self.length_bias * length
        return log_prob / length**self.length_normalisation if self.length_normalisation else log_prob

    def upper_bound(self, log_prob: Any, length: Any, limits: Any) -> Any:
        """The best score that unfinished hypotheses of this length can still reach, since log p never rises.

        Without a bias, ``s / n ** a`` with ``s <= 0`` is highest at the limit.

        As a function of the final length ``n``, ``(s + b n) / n ** a`` with ``s <= 0`` is highest at one of the ends,
        or where its derivative is 0: at ``n = a s / (b (1 - a))``. Limits are as precise as log probabilities.
        """
        shortest = length + 1
        if not self.length_normalisation and self.length_bias <= 0:
            return self.normalise(log_prob, shortest)
        if not self.length_bias:
            return self.normalise(log_prob, limits)
        longest = limits.clip(shortest)
        bound = self.normalise(log_prob, shortest).clip(self.normalise(log_prob, longest))
        slope = self.length_bias * (1 - self.length_normalisation)
        if not slope:
            return bound
        turning_point = (self.length_normalisation * log_prob / slope).clip(shortest).clip(None, longest)
        return bound.clip(self.normalise(log_prob, turning_point))


Search = Callable[[Any, "Batch", BeamSettings], list[list[Hypothesis]]]
"""Finds the best outputs of each input of a batch."""
