"""Listwise learning: batches of whole questions, and a softmax over the candidates of each question."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from antiphon.ranking.matchers import PairModel

_BATCHES_PER_POOL = 50
"""Questions are sorted by length among those of about this many batches, so that batches stay random."""


class QuestionBatch(NamedTuple):
    """All candidates of some questions, those of a question side by side.

    ``pairs`` is the batch that the network reads, ``question[n]`` the index of the question of pair ``n``. A question
    is never split between micro-batches.
    """

    question: Tensor
    pairs: Any

    @property
    def labels(self) -> Tensor:
        """1 for right candidates, 0 for wrong ones."""
        labels: Tensor = self.pairs.labels
        return labels

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Pairs, question positions, sentence positions; their product is the number of cells."""
        sizes: tuple[int, int, int] = self.pairs.sizes
        return sizes

    def parts(self, pairs: int) -> "list[QuestionBatch]":
        """The same questions in batches of at most ``pairs`` pairs; a question with more is a batch of its own."""
        candidates = torch.unique_consecutive(self.question, return_counts=True)[1].tolist()
        ends = np.cumsum([0, *candidates])
        groups = _group_questions(candidates, [1] * len(candidates), pairs, pairs)
        chosen = [slice(ends[group.start], ends[group.stop]) for group in groups]
        return [QuestionBatch(self.question[part], self.pairs.part(part)) for part in chosen]

    def to(self, device: torch.device | str) -> "QuestionBatch":
        """The same batch on another device."""
        return QuestionBatch(self.question.to(device, non_blocking=True), self.pairs.to(device))


@dataclass(frozen=True)
class ListwiseLoss:
    """The loss of a pair: minus the log probability of its label, plus ``weight`` times its share of its question's.

    A question of ``mean_candidates`` candidates adds as much as that many pairs, and every other question the same.
    """

    weight: float
    mean_candidates: float

    def __call__(self, model: PairModel, batch: QuestionBatch) -> Float[Tensor, " B"]:
        """The loss of each pair."""
        log_odds = model(batch.pairs)
        pointwise = binary_cross_entropy_with_logits(log_odds, batch.labels, reduction="none")
        listwise = self.mean_candidates * question_loss(log_odds, batch.labels, batch.question)
        return pointwise + self.weight * listwise


def question_loss(
    log_odds: Float[Tensor, " B"], labels: Float[Tensor, " B"], question: Int[Tensor, " B"]
) -> Float[Tensor, " B"]:
    """Each pair's share of its question's cross entropy, between right candidates and a softmax over all candidates.

    ``-1/R sum_r log p(r)`` over the ``R`` right candidates ``r``, where ``p(r) = exp(s_r) / sum_c exp(s_c)`` and ``s``
    are the log odds: each right candidate has the same share of the target, so all of them have to be at the top, as
    for mean average precision. 0 for a question without a right candidate. The shares of the ``C`` candidates are
    equal and sum to the cross entropy, so that every question weighs the same, however many candidates it has.
    """
    same: Bool[Tensor, "B B"] = question[:, None] == question
    log_sum = log_odds.expand_as(same).masked_fill(~same, -torch.inf).logsumexp(1)
    right = same * labels
    count = right.sum(1)
    mean_of_right = (right * log_odds).sum(1) / count.clamp(min=1)
    return (log_sum - mean_of_right) * (count > 0) / same.sum(1)


def plan_question_batches(
    candidates: NDArray[np.int64],
    sentence_lengths: NDArray[np.int64],
    *,
    batch_size: int,
    max_tokens: int,
    order: np.random.Generator,
) -> list[NDArray[np.int64]]:
    """Indices of the pairs of each batch: whole questions, at most ``batch_size`` pairs and ``max_tokens`` in all.

    A question that is larger is a batch of its own. ``candidates`` is the number of pairs of each question, whose
    indices are consecutive. Questions with sentences of similar length go together, as in ``plan_batches``.
    """
    ends = np.cumsum(candidates)
    pairs = np.split(np.arange(len(sentence_lengths)), ends[:-1])
    longest = np.array([sentence_lengths[indices].max(initial=1) for indices in pairs], np.int64)
    shuffled, batches = order.permutation(len(pairs)), []
    pool = max(1, _BATCHES_PER_POOL * batch_size * len(pairs) // max(1, len(sentence_lengths)))
    for first in range(0, len(shuffled), pool):
        members = shuffled[first : first + pool]
        members = members[np.argsort(longest[members], kind="stable")]
        for group in _group_questions(candidates[members], longest[members], batch_size, max_tokens):
            batches.append(np.concatenate([pairs[question] for question in members[group]]))
    return [batches[index] for index in order.permutation(len(batches))]


def _group_questions(
    candidates: Sequence[int] | NDArray[np.int64],
    longest: Sequence[int] | NDArray[np.int64],
    batch_size: int,
    max_tokens: int,
) -> Iterator[slice]:
    """Consecutive questions in the largest groups that both bounds allow, each of at least one question."""
    first = pairs = columns = 0
    for index, (count, length) in enumerate(zip(candidates, longest, strict=True)):
        pairs, columns = pairs + count, max(columns, length)
        if index > first and (pairs > batch_size or pairs * columns > max_tokens):
            yield slice(first, index)
            first, pairs, columns = index, count, length
    yield slice(first, len(candidates))
