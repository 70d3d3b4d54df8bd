"""A padded batch of pairs."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from antiphon.data.vocab import END, PAD, START, UNKNOWN

Ids = NDArray[np.int32]


class Batch(NamedTuple):
    """Token ids padded on the right; every sequence ends in the end symbol, which its length counts."""

    source: Tensor
    source_lengths: Tensor
    target: Tensor
    target_lengths: Tensor

    @classmethod
    def of(cls, sources: Sequence[Ids], targets: Sequence[Ids] | None = None) -> Self:
        """The batch of these sequences, which carry no end symbol yet; without targets those are empty."""
        if targets is None:
            targets = [np.zeros(0, np.int32)] * len(sources)
        return cls(*_pad(sources), *_pad(targets))

    @classmethod
    def sample(cls, pairs: int, rows: int, columns: int) -> Self:
        """A batch of pairs of nothing but unknown tokens, end symbols counted in their lengths."""
        source, target = (np.full(length - 1, UNKNOWN, np.int32) for length in (rows, columns))
        return cls.of([source] * pairs, [target] * pairs)

    @property
    def shifted_target(self) -> Tensor:
        """What the decoder reads: the start symbol, then every target token but the last."""
        start = torch.full_like(self.target[:, :1], START)
        return torch.cat([start, self.target[:, :-1]], 1)

    def padded(self, pairs: int, I: int, J: int) -> "Batch":
        """The same batch with more padding, and further pairs that hold nothing but one token of it."""
        more = pairs - len(self.source)
        source, target = (
            pad(tokens, (0, length - tokens.shape[1], 0, more), value=PAD)
            for tokens, length in ((self.source, I), (self.target, J))
        )
        source_lengths, target_lengths = (
            pad(lengths, (0, more), value=1) for lengths in (self.source_lengths, self.target_lengths)
        )
        return Batch(source, source_lengths, target, target_lengths)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Pairs, source positions, target positions: as many cells as their product."""
        pairs, rows = self.source.shape
        return pairs, rows, self.target.shape[1]

    def parts(self, pairs: int) -> "list[Batch]":
        """The same pairs in batches of at most so many, padded as they are."""
        return [Batch(*tensors) for tensors in zip(*(tensor.split(pairs) for tensor in self), strict=True)]

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in self))


def _pad(sequences: Sequence[Ids]) -> tuple[Tensor, Tensor]:
    lengths = np.fromiter((len(sequence) + 1 for sequence in sequences), np.int64, len(sequences))
    padded = np.full((len(sequences), int(lengths.max(initial=1))), PAD, np.int64)
    padded[np.arange(padded.shape[1]) < lengths[:, None] - 1] = np.concatenate([*sequences, np.zeros(0, np.int32)])
    padded[np.arange(len(sequences)), lengths - 1] = END
    return torch.from_numpy(padded), torch.from_numpy(lengths)
