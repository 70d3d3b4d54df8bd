"""Settings and results of a search: hypotheses, and how they are traced back to tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

from antiphon.torch_free.vocab import END, UNKNOWN

LONG_SOURCE = 48
"""Inputs of more tokens are long: a transducer decodes them in a band of rows, in which a search can be stuck."""
STUCK_AFTER = 200
"""A beam search gives up on a long input after this many tokens at one position."""
UNFINISHED_FACTOR = 0.5
"""Factor on the channel score where outputs are compared that may not have ended (``decode/noisy_channel.py``)."""
FINISHED_COLUMNS = ("score", "value", "log_prob", "step", "slot")
"""The numbers that a search keeps of a finished output, as one row; its features follow.

``score`` ranks finished outputs, ``value`` is what hypotheses were compared by. The output is the hypothesis that was
in ``slot`` after ``step`` tokens, extended by the end symbol.
"""
SCORE, VALUE, STEP, SLOT = map(FINISHED_COLUMNS.index, ("score", "value", "step", "slot"))
StepLists = tuple[list[list[int]], list[list[int]], list[list[float]]]
"""The record of a step: token, parent slot and log probability of the hypothesis in each slot of each sentence."""


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


def with_alignments(found: list[list[Hypothesis]], rows: Sequence[Sequence[int]]) -> list[list[Hypothesis]]:
    """The same hypotheses, each with the input position of every token; ``rows`` may go on behind its end."""
    given = iter(rows)
    return [[replace(each, alignment=tuple(next(given)[: len(each.tokens)])) for each in some] for some in found]


def with_copies(found: list[list[Hypothesis]], rows: Sequence[Sequence[int]], size: int) -> list[list[Hypothesis]]:
    """The same hypotheses with copies of the source words in some rows instead of unknown tokens.

    The copy of the word in row ``i`` has the id ``size + i``; ``size`` is that of the target vocabulary.
    """
    given = iter(rows)
    return [[_with_copies(each, next(given), size) for each in some] for some in found]


def _with_copies(one: Hypothesis, rows: Sequence[int], size: int) -> Hypothesis:
    pairs = zip(one.tokens, rows, strict=False)
    return replace(one, tokens=tuple(size + row if token == UNKNOWN else token for token, row in pairs))


def have_unknown(found: list[list[Hypothesis]]) -> bool:
    """Whether an output has unknown tokens, which need an alignment to be copied."""
    return any(UNKNOWN in hypothesis.tokens for hypotheses in found for hypothesis in hypotheses)


def padded_tokens(found: Sequence[Sequence[Hypothesis]]) -> list[list[tuple[int, ...]]]:
    """The tokens of all outputs, ``B x K x J``: padded with end symbols, and the last output of a sentence repeated."""
    width = max(1, *map(len, found))
    longest = max((len(each.tokens) for outputs in found for each in outputs), default=1)
    table = []
    for outputs in found:
        rows = [each.tokens + (END,) * (longest - len(each.tokens)) for each in outputs] or [(END,) * longest]
        table.append(rows + rows[-1:] * (width - len(rows)))
    return table


def with_scores(
    found: Sequence[Sequence[Hypothesis]], scores: Sequence[Sequence[float]], features: Sequence[Sequence[Any]]
) -> list[list[Hypothesis]]:
    """The outputs with new scores and features, given as ``B x K``, in the order of ``padded_tokens``."""
    return [
        [replace(each, score=score, features=tuple(row)) for each, score, row in zip(*of_sentence, strict=False)]
        for of_sentence in zip(found, scores, features, strict=True)
    ]


def merge_outputs(
    one: Sequence[Sequence[Hypothesis]], other: Sequence[Sequence[Hypothesis]], nbest: int
) -> list[list[Hypothesis]]:
    """The ``nbest`` best outputs of two searches for every sentence, best first; each output once."""
    merged = []
    for outputs in zip(one, other, strict=True):
        unique = {each.tokens: each for each in (*outputs[1], *outputs[0])}
        merged.append(sorted(unique.values(), key=lambda each: -each.score)[:nbest])
    return merged


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamSettings:
    """Settings of a beam search.

    * ``beam`` hypotheses of a sentence are kept, and its ``nbest`` best outputs returned.
    * ``threshold``: what is more than this many nats behind the best hypothesis of its sentence is pruned.
    * ``proposals``: a noisy channel rescores this many extensions before it keeps ``beam`` of them, and ranks the best
      ``direct_outputs`` of its direct model along with its own.
    * ``commit_margin``: a stream writes the prefix shared by all outputs at most this many nats behind the best.
    * An output may be ``max_length_ratio`` times as long as its input, and ``max_length_extra`` tokens more.
    * ``length_normalisation``, ``length_bias``: finished outputs are ranked by ``search_score``.
    * ``replace_unknown``: unknown tokens are written, to be replaced later (``decode/alignments.py``).

    Methods take tensors or arrays of numpy.
    """

    beam: int
    proposals: int
    nbest: int = 1
    direct_outputs: int = 0
    threshold: float
    commit_margin: float
    max_length_ratio: float
    max_length_extra: int
    length_normalisation: float
    length_bias: float
    replace_unknown: bool = False

    def for_rescoring(self) -> "BeamSettings":
        """The same with at least ``beam`` answers: the first output that ends must not prune all longer ones."""
        return replace(self, nbest=max(self.nbest, self.beam))

    def length_limits(self, source_lengths: Any) -> Any:
        """How many tokens, end symbol counted, the output of each source may have; whole numbers."""
        return source_lengths * self.max_length_ratio // 1 + self.max_length_extra

    def search_score(self, log_prob: Any, length: Any) -> Any:
        """``(log p + length_bias * length) / length ** length_normalisation``."""
        if self.length_bias:
            log_prob = log_prob + self.length_bias * length
        return log_prob / length**self.length_normalisation if self.length_normalisation else log_prob

    def upper_bound(self, log_prob: Any, length: Any, limits: Any) -> Any:
        """The best score that unfinished hypotheses of this length can still reach, since log p never rises.

        The score ``(s + b n) / n ** a``, with ``s`` the log probability and ``s <= 0``, is bounded over all final
        lengths ``n`` up to the limit. It is highest at one of the ends, or where its derivative is 0, at
        ``n = a s / (b (1 - a))``. Without a bias (``b = 0``) it is highest at the limit. Limits have the type of log
        probabilities.
        """
        shortest = length + 1
        if not self.length_normalisation and self.length_bias <= 0:
            return self.search_score(log_prob, shortest)
        if not self.length_bias:
            return self.search_score(log_prob, limits)
        longest = limits.clip(shortest)
        bound = self.search_score(log_prob, shortest).clip(self.search_score(log_prob, longest))
        slope = self.length_bias * (1 - self.length_normalisation)
        if not slope:
            return bound
        turning_point = (self.length_normalisation * log_prob / slope).clip(shortest).clip(None, longest)
        return bound.clip(self.search_score(log_prob, turning_point))


class Search(Protocol):
    """Finds the best outputs of each input of a batch; all begin with the tokens of ``prefix``."""

    def __call__(
        self, model: Any, batch: Any, settings: BeamSettings, prefix: Sequence[int] = (), /
    ) -> list[list[Hypothesis]]:
        """The outputs of each input, best first."""
        ...


class Weights(NamedTuple):
    """Weights of the feature scores: direct model, channel model, language model, length."""

    direct: float = 1.0
    channel: float = 1.0
    language_model: float = 1.0
    length: float = 0.0

    @property
    def scale(self) -> float:
        """The largest absolute weight of a model, 1 if all are 0.

        Objectives are divided by it, so that differences between them are about as large as those of a single model.
        """
        return max(abs(weight) for weight in self[:3]) or 1.0

    @property
    def only_direct(self) -> bool:
        """Whether nothing but the direct model weighs: a noisy channel then answers as its direct model does alone."""
        return self.direct > 0 and not any(self[1:])

    def weigh(self, features: Sequence[float]) -> float:
        """The weighted sum of the scores of one output; scores that weigh nothing do not matter."""
        return sum((weight * score for weight, score in zip(self, features, strict=True) if weight), 0.0)


def trace_outputs(
    finished: Sequence[Sequence[Sequence[float]]], steps: Sequence[StepLists], K: int
) -> list[list[Hypothesis]]:
    """The finished hypotheses of every sentence, each given as a row of ``FINISHED_COLUMNS``; ``K`` slots each."""
    answers: list[list[Hypothesis]] = []
    for b, outputs in enumerate(finished):
        answers.append([])
        for score, _, log_prob, step, slot, *features in outputs:
            if score > float("-inf"):
                tokens, log_probs = trace_path(steps[: int(step)], b, int(slot), K)
                each = tuple(after - before for before, after in pairwise([0.0, *log_probs, log_prob]))
                answers[b].append(Hypothesis((*tokens, END), score, log_prob, each, features=tuple(features)))
    return answers


def trace_path(steps: Sequence[StepLists], sentence: int, slot: int, K: int) -> tuple[list[int], list[float]]:
    """The tokens of a hypothesis, and its log probability after each."""
    tokens, log_probs = [], []
    for token, parent, log_prob in reversed(steps):
        rank = slot - sentence * K
        tokens.append(token[sentence][rank])
        log_probs.append(log_prob[sentence][rank])
        slot = parent[sentence][rank]
    return tokens[::-1], log_probs[::-1]
