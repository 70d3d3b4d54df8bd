"""Pairs of a question and a candidate sentence, encoded and in batches."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from antiphon.ranking.question_files import Question
from antiphon.torch_free.vocab import PAD, UNKNOWN, Ids


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

    @classmethod
    def sample(cls, pairs: int, rows: int, columns: int) -> "MatchBatch":
        """A batch of unknown tokens, for measuring; each pair has its own question."""
        questions, sentences = (torch.full((pairs, max(1, length)), UNKNOWN) for length in (rows, columns))
        lengths = [torch.full((pairs,), side.shape[1]) for side in (questions, sentences)]
        return cls(questions, lengths[0], torch.arange(pairs), sentences, lengths[1], torch.zeros(pairs))

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


class PairCorpus(Protocol):
    """Every pair of a question and a candidate, encoded."""

    @property
    def labels(self) -> NDArray[np.float32]:
        """Which candidates are right."""
        ...

    @property
    def question_lengths(self) -> NDArray[np.int64]:
        """Tokens of the question of each pair."""
        ...

    @property
    def sentence_lengths(self) -> NDArray[np.int64]:
        """Tokens of the sentence of each pair."""
        ...

    def __len__(self) -> int: ...

    def batch(self, indices: NDArray[np.int64]) -> Any:
        """The pairs at these indices, as the network reads them."""
        ...


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
