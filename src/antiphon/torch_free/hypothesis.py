"""Settings and results of a search: hypotheses, how they are traced back to tokens, and those of two searches.

Of a model with a right-to-left twin, the best outputs of both searches are the candidates, and both models judge them,
so that their probabilities are exact::

    p(y | x) = ( p_forward(y | x) + p_backward(reverse(y) | reverse(x)) ) / 2
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from antiphon.torch_free.vocab import END, UNKNOWN

LONG_SOURCE = 48
"""Inputs of more tokens are long: a search with a transducer can be stuck at one of their positions."""
STUCK_AFTER = 200
"""A beam search gives up on a long input after this many tokens at one position."""
FINISHED_COLUMNS = ("score", "value", "log_prob", "step", "slot")
"""The numbers that a search keeps of a finished output, as one row; its features follow.

``score`` ranks finished outputs, ``value`` is what hypotheses were compared by. The output is the hypothesis that was
in ``slot`` after ``step`` tokens, extended by the end symbol.
"""
SCORE, VALUE, STEP, SLOT = map(FINISHED_COLUMNS.index, ("score", "value", "step", "slot"))
StepLists = tuple[list[list[int]], list[list[int]], list[list[float]]]
"""The record of a step: token, parent slot and log probability of the hypothesis in each slot of each sentence."""
Tokens = tuple[int, ...]
_CANDIDATES = 5
"""Outputs of each search that both models judge, where the beam is that wide."""
T = TypeVar("T")


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


def have_unknown(found: list[list[Hypothesis]]) -> bool:
    """Whether an output has unknown tokens, which need an alignment to be copied."""
    return any(UNKNOWN in hypothesis.tokens for hypotheses in found for hypothesis in hypotheses)


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


Search = Callable[..., list[list[Hypothesis]]]
"""``search(model, batch, settings, prefix=())``: the best outputs of each input, which begin with ``prefix``."""


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


def with_candidates(settings: BeamSettings) -> BeamSettings:
    """The settings of each search, which gives enough outputs."""
    return replace(settings, nbest=max(settings.nbest, min(settings.beam, _CANDIDATES)))


class Pairs(Protocol):
    """Padded pairs, as arrays of numpy or tensors of PyTorch."""

    def paired(self, index: Sequence[int], outputs: Sequence[Tokens]) -> Self:
        """A pair for each output, whose source is given by its index."""
        ...

    def reversed(self) -> Self:
        """The same pairs read from the end."""
        ...


P = TypeVar("P", bound=Pairs)


@dataclass(frozen=True)
class OutputScorer(Generic[P]):
    """Gives outputs, end symbols last, of sources with given indices in a batch their log probabilities.

    ``forward`` has the log probability of every token of pairs, and so has ``backward`` of pairs read from the end, if
    there is a right-to-left twin; tokens of hypotheses keep their probabilities from the left.
    """

    batch: P
    forward: Callable[[P], Any]
    backward: Callable[[P], Any] | None = None

    def __call__(self, sources: Sequence[int], outputs: Sequence[Tokens]) -> list[Hypothesis]:
        """Hypotheses with the probability of both models, or of the only one."""
        found = self.from_left(sources, outputs)
        return found if self.backward is None else self.with_both(found, sources)

    def from_left(self, sources: Sequence[int], outputs: Sequence[Tokens]) -> list[Hypothesis]:
        """Hypotheses of the left-to-right model alone."""
        rows = self.forward(self.batch.paired(sources, outputs)).tolist()
        each = [tuple(row[: len(output)]) for row, output in zip(rows, outputs, strict=True)]
        return [Hypothesis(output, sum(row), sum(row), row) for output, row in zip(outputs, each, strict=True)]

    def with_both(self, found: Sequence[Hypothesis], sources: Sequence[int]) -> list[Hypothesis]:
        """Hypotheses of the left-to-right model with the probability of both."""
        assert self.backward is not None
        pairs = self.batch.paired(sources, [each.tokens for each in found]).reversed()
        both = [
            log_mean(each.log_prob, theirs)
            for each, theirs in zip(found, self.backward(pairs).sum(1).tolist(), strict=True)
        ]
        return [replace(each, score=log_prob, log_prob=log_prob) for each, log_prob in zip(found, both, strict=True)]


def found_pairs(pairs: P, found: Sequence[Sequence[Hypothesis]]) -> P:
    """A pair for each hypothesis: its source, and its tokens as the target."""
    sources = [b for b, hypotheses in enumerate(found) for _ in hypotheses]
    return pairs.paired(sources, [each.tokens for hypotheses in found for each in hypotheses])


def best_of_both(
    found: Sequence[Sequence[Hypothesis]],
    mirrored: Sequence[Sequence[Hypothesis]],
    scorer: OutputScorer[Any],
    settings: BeamSettings,
) -> list[list[Hypothesis]]:
    """The ``nbest`` best outputs of each source, given those from the left, and those from the right as it reads them.

    The probabilities of their tokens remain those from the left.
    """
    known = [{each.tokens for each in some} for some in found]
    turned = [[(*each.tokens[-2::-1], END) for each in some] for some in mirrored]
    added = [[each for each in some if each not in ours] for some, ours in zip(turned, known, strict=True)]
    more = _of_sources(added, scorer.from_left)
    judged = mean_of_both([[*ours, *others] for ours, others in zip(found, more, strict=True)], scorer)
    ranked = [
        [replace(each, score=settings.search_score(each.log_prob, len(each.tokens))) for each in some]
        for some in judged
    ]
    return [sorted(some, key=lambda each: -each.score)[: settings.nbest] for some in ranked]


def mean_of_both(found: Sequence[Sequence[Hypothesis]], scorer: OutputScorer[Any]) -> list[list[Hypothesis]]:
    """Hypotheses of the left-to-right model for each source, with the probability of both models."""
    return _of_sources(found, lambda sources, outputs: scorer.with_both(outputs, sources))


def log_mean(one: float, other: float) -> float:
    """The log of the mean of two probabilities, given their logs."""
    return float(np.logaddexp(one, other) - np.log(2))


def _of_sources(
    outputs: Sequence[Sequence[T]], judge: Callable[[Sequence[int], Sequence[T]], Sequence[Hypothesis]]
) -> list[list[Hypothesis]]:
    """What ``judge`` makes of the outputs of all sources, given the index of the source of each, in one call."""
    sources = [b for b, some in enumerate(outputs) for _ in some]
    judged: list[list[Hypothesis]] = [[] for _ in outputs]
    for b, each in zip(sources, judge(sources, list(chain(*outputs))) if sources else (), strict=True):
        judged[b].append(each)
    return judged
