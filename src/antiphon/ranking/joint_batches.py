"""Pairs of a question and a candidate sentence that are read together, as one text each, encoded and in batches."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from antiphon.nn.recurrent import valid_positions
from antiphon.ranking.question_batches import pad_texts
from antiphon.ranking.question_files import Question
from antiphon.torch_free.vocab import UNKNOWN, Ids


class JointIds(NamedTuple):
    """The ids of a pair read together, and how many of them belong to the question."""

    ids: Ids
    first: int


class JointBatch(NamedTuple):
    """Padded pairs; the first ``question_lengths`` tokens of each are the question, with the markers around it."""

    tokens: Tensor
    lengths: Tensor
    question_lengths: Tensor
    labels: Tensor

    @classmethod
    def sample(cls, pairs: int, rows: int, columns: int) -> "JointBatch":
        """A batch of unknown tokens, for measuring: ``rows`` of each pair are its question."""
        lengths = torch.full((pairs,), max(1, columns))
        tokens = torch.full((pairs, max(1, columns)), UNKNOWN)
        return cls(tokens, lengths, torch.full((pairs,), rows), torch.zeros(pairs))

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Pairs, 1, and positions; their product is the number of tokens."""
        pairs, columns = self.tokens.shape
        return pairs, 1, columns

    @property
    def valid(self) -> Tensor:
        """True at the tokens of each pair."""
        return valid_positions(self.lengths, self.tokens.shape[1])

    @property
    def token_types(self) -> Tensor:
        """0 at the tokens of the question, 1 at those of the sentence."""
        return (~valid_positions(self.question_lengths, self.tokens.shape[1])).long()

    def parts(self, pairs: int) -> "list[JointBatch]":
        """The same pairs in batches of at most ``pairs``."""
        return [self.part(slice(first, first + pairs)) for first in range(0, len(self.labels), pairs)]

    def part(self, pairs: slice) -> "JointBatch":
        """Some consecutive pairs."""
        return JointBatch(*(tensor[pairs] for tensor in self))

    def to(self, device: torch.device | str) -> "JointBatch":
        """The same batch on another device."""
        return JointBatch(*(tensor.to(device, non_blocking=True) for tensor in self))


@dataclass(frozen=True)
class JointCorpus:
    """Every pair of a set of questions, each encoded as one text."""

    pairs: Sequence[JointIds]
    labels: NDArray[np.float32]

    @classmethod
    def of(cls, questions: Iterable[Question], encode: Callable[[str, str], JointIds]) -> "JointCorpus":
        """All pairs, in the order of the questions and their candidates."""
        answers = [(question.text, answer) for question in questions for answer in question.answers]
        return cls(
            [encode(question, answer.text) for question, answer in answers],
            np.array([answer.label or 0 for _, answer in answers], np.float32),
        )

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def question_lengths(self) -> NDArray[np.int64]:
        """1 for each pair: its question is part of the text."""
        return np.ones(len(self.pairs), np.int64)

    @property
    def sentence_lengths(self) -> NDArray[np.int64]:
        """Tokens of each pair."""
        return np.array([len(pair.ids) for pair in self.pairs], np.int64)

    def batch(self, indices: NDArray[np.int64]) -> JointBatch:
        """The pairs at these indices."""
        chosen = [self.pairs[index] for index in indices]
        firsts = torch.tensor([pair.first for pair in chosen])
        return JointBatch(*pad_texts([pair.ids for pair in chosen]), firsts, torch.from_numpy(self.labels[indices]))
