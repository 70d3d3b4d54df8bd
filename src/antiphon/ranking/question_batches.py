"""Pairs of a question and a candidate sentence, encoded and in batches.

For listwise learning, a batch holds whole questions.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from antiphon.ranking.questions import Question
from antiphon.torch_free.vocab import PAD, Ids


class MatchBatch(NamedTuple):
    """Padded sentences, and every distinct question once: pair ``n`` is sentence ``n`` and question ``question[n]``.

    An empty text counts as one blank, whose word vector is zero, so every length is at least 1.
    """

    questions: Tensor
    question_lengths: Tensor
    question: Tensor
    sentences: Tensor
    sentence_lengths: Tensor
    labels: Tensor

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Pairs, question positions, sentence positions; their product is the number of cells."""
        pairs, columns = self.sentences.shape
        return pairs, self.questions.shape[1], columns

    def parts(self, pairs: int) -> "list[MatchBatch]":
        """The same pairs in batches of at most ``pairs``, each with the questions it needs."""
        return [self.part(slice(first, first + pairs)) for first in range(0, len(self.labels), pairs)]

    def part(self, pairs: slice) -> "MatchBatch":
        """Some consecutive pairs, with the questions they need."""
        distinct, inverse = torch.unique(self.question[pairs], return_inverse=True)
        of_pairs = self.sentences[pairs], self.sentence_lengths[pairs], self.labels[pairs]
        return MatchBatch(self.questions[distinct], self.question_lengths[distinct], inverse, *of_pairs)

    def to(self, device: torch.device | str) -> "MatchBatch":
        """The same batch on another device."""
        return MatchBatch(*(tensor.to(device, non_blocking=True) for tensor in self))


@dataclass(frozen=True)
class MatchCorpus:
    """Every pair of a set of questions, as indices of encoded texts."""

    questions: Sequence[Ids]
    sentences: Sequence[Ids]
    question: NDArray[np.int64]
    labels: NDArray[np.float32]

    @classmethod
    def of(cls, questions: Iterable[Question], encode: Callable[[str], Ids]) -> "MatchCorpus":
        """All pairs, in the order of the questions and their candidates."""
        questions = list(questions)
        answers = [(index, answer) for index, question in enumerate(questions) for answer in question.answers]
        return cls(
            [encode(question.text) for question in questions],
            [encode(answer.text) for _, answer in answers],
            np.array([index for index, _ in answers], np.int64),
            np.array([answer.label or 0 for _, answer in answers], np.float32),
        )

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def question_lengths(self) -> NDArray[np.int64]:
        """Tokens of the question of each pair."""
        return np.array([len(ids) for ids in self.questions], np.int64)[self.question]

    @property
    def sentence_lengths(self) -> NDArray[np.int64]:
        """Tokens of the sentence of each pair."""
        return np.array([len(ids) for ids in self.sentences], np.int64)

    def batch(self, indices: NDArray[np.int64]) -> MatchBatch:
        """The pairs at these indices."""
        distinct, inverse = np.unique(self.question[indices], return_inverse=True)
        return MatchBatch(
            *pad_texts([self.questions[n] for n in distinct]),
            torch.from_numpy(inverse),
            *pad_texts([self.sentences[n] for n in indices]),
            torch.from_numpy(self.labels[indices]),
        )


def pad_texts(sequences: Sequence[Ids]) -> tuple[Tensor, Tensor]:
    """Padded ids of texts, and their lengths; an empty text counts as one blank."""
    lengths = np.array([max(1, len(sequence)) for sequence in sequences], np.int64)
    padded = np.full((len(sequences), int(lengths.max(initial=1))), PAD, np.int64)
    for row, sequence in zip(padded, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(padded), torch.from_numpy(lengths)


_BATCHES_PER_POOL = 50
"""Questions are sorted by length among those of about this many batches, so that batches stay random."""


class QuestionBatch(NamedTuple):
    """All candidates of some questions, those of a question side by side.

    ``pairs`` is the batch that the network reads, ``question[n]`` the index of the question of pair ``n``. A question
    is never split between micro-batches.
    """

    question: Tensor
    pairs: MatchBatch

    @property
    def labels(self) -> Tensor:
        """1 for right candidates, 0 for wrong ones."""
        return self.pairs.labels

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Pairs, question positions, sentence positions; their product is the number of cells."""
        return self.pairs.sizes

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
