"""What a search is asked for and what it finds."""

from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from antiphon.data.vocab import PAD, START, UNKNOWN
from antiphon.lattice.grid import IMPOSSIBLE

Item = TypeVar("Item")

NEVER_WRITTEN = [PAD, UNKNOWN, START]
"""Tokens that no search writes; the end symbol is written, but is no word."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One output for one input.

    ``tokens`` are target ids, the end symbol last. ``rows`` holds the input position at which each of them was
    written, counted from 0; it is empty for models without an alignment. ``log_score`` is higher for better.
    ``parts`` are the features that a combination of models weighed to get it.
    """

    tokens: tuple[int, ...]
    log_score: float
    rows: tuple[int, ...] = ()
    parts: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class BeamSettings:
    """How wide to search, and what to prefer.

    ``proposals`` is how many candidates a combination of models rescores before it keeps ``beam`` of them.
    ``outputs`` is how many distinct outputs of one length are kept at most, over all input positions.
    ``threshold`` leaves out whatever is more than this many nats behind the best of its sentence and column;
    ``commit_margin`` is how far behind the best an output may be to hold back what a stream writes;
    outputs may be ``max_length_ratio`` times as long as the input, and ``max_length_extra`` tokens more. Finished
    outputs are ranked by their score with length bias and normalisation, without which short ones are favoured.
    """

    beam: int = 10
    proposals: int = 20
    nbest: int = 1
    outputs: int | None = None
    threshold: float = 8.0
    commit_margin: float = float("inf")
    max_length_ratio: float = 2.0
    max_length_extra: int = 10
    length_normalisation: float = 0.0
    length_bias: float = 0.0

    def longest_outputs(self, source_lengths: Tensor) -> Tensor:
        """How many tokens, end symbol counted, the output of each source may have."""
        return (source_lengths * self.max_length_ratio).long() + self.max_length_extra

    def normalise(self, log_prob: Tensor, length: Tensor | int) -> Tensor:
        """``(log p + length_bias * length) / length ** length_normalisation``."""
        return (log_prob + self.length_bias * length) / length**self.length_normalisation

    def best_still_possible(
        self, log_prob: Tensor, length: Tensor | int, limits: Tensor, longest: int | None = None
    ) -> Tensor:
        """The best normalised score that unfinished outputs of this length can reach, since log p never rises.

        Who knows the largest of the limits, ``longest``, spares the host a wait.
        """
        lengths = torch.arange(1, (longest or int(limits.max())) + 1, dtype=log_prob.dtype, device=log_prob.device)
        scores = self.normalise(log_prob[:, None], lengths)
        is_open = (lengths > length) & (lengths <= limits[:, None])
        return scores.masked_fill(~is_open, IMPOSSIBLE).amax(1)


class Finished(Generic[Item]):
    """The ``keep`` best finished hypotheses of one sentence, best first."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.entries: list[tuple[float, Item]] = []

    def add(self, log_score: float, item: Item) -> None:
        """Notes a hypothesis that has ended, if it is among the best."""
        self.entries.append((log_score, item))
        self.entries.sort(key=lambda entry: -entry[0])
        del self.entries[self.keep :]

    def beats(self, log_score: float) -> bool:
        """Whether nothing of this score could still enter."""
        return len(self.entries) == self.keep and self.entries[-1][0] >= log_score
