"""A padded batch of pairs."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from antiphon.torch_free.batch import PaddedPairs
from antiphon.torch_free.codec import PairCodec
from antiphon.torch_free.readers import Source
from antiphon.torch_free.vocab import NOT_COPIED, PAD, START, Ids


class Batch(NamedTuple):
    """Token ids padded on the right; every sequence ends in the end symbol, which its length counts.

    ``features`` are the ids of each pair's features, a set, padded as well. For models that copy words, ``copied`` has
    the target id of every source token; unknown words, there and in ``target``, have ids from the size of the target
    vocabulary on (``torch_free/vocab.py``). For other models it has no columns.
    """

    source: Tensor
    source_lengths: Tensor
    target: Tensor
    target_lengths: Tensor
    features: Tensor
    copied: Tensor

    @classmethod
    def of(cls, *sequences: Sequence[Ids] | None, **options: Any) -> Self:
        """The batch of sources, targets and features, which have no end symbol yet, as for ``PaddedPairs.of``."""
        return cls.from_padded(PaddedPairs.of(*sequences, **options))  # type: ignore[arg-type]

    @classmethod
    def from_padded(cls, pairs: PaddedPairs) -> Self:
        """The batch of padded arrays, which it shares."""
        return cls(*map(torch.from_numpy, pairs))

    @classmethod
    def of_text(cls, codec: PairCodec, sources: Sequence[Source], targets: Sequence[str] | None = None) -> Self:
        """The batch of sources with their features, and of their targets if given."""
        return cls.from_padded(codec.padded(sources, targets))

    @property
    def shifted_target(self) -> Tensor:
        """The decoder's input: the start symbol, then every target token but the last."""
        start = torch.full_like(self.target[:, :1], START)
        return torch.cat([start, self.target[:, :-1]], 1)

    def reversed(self) -> "Batch":
        """The same pairs read from the end; end symbols and padding stay where they are. Not for copied words."""
        return self._replace(
            source=_mirrored(self.source, self.source_lengths), target=_mirrored(self.target, self.target_lengths)
        )

    def paired(self, index: Sequence[int], outputs: Sequence[Sequence[int]]) -> "Batch":
        """A pair for each output, which ends in the end symbol; ``index`` has the number of its source."""
        rows = torch.tensor(index, dtype=torch.long, device=self.source.device)
        targets = Batch.of([], [np.array(output[:-1], np.int32) for output in outputs]).to(rows.device)
        pairs = Batch(*(tensor[rows] for tensor in self))
        return pairs._replace(target=targets.target, target_lengths=targets.target_lengths)

    def padded(self, pairs: int, I: int, J: int) -> "Batch":
        """The same batch with more padding, and further pairs that consist of padding."""
        more = pairs - len(self.source)
        source, target = (
            pad(tokens, (0, length - tokens.shape[1], 0, more), value=PAD)
            for tokens, length in ((self.source, I), (self.target, J))
        )
        source_lengths, target_lengths = (
            pad(lengths, (0, more), value=1) for lengths in (self.source_lengths, self.target_lengths)
        )
        features = pad(self.features, (0, 0, 0, more), value=PAD)
        wider = I - self.copied.shape[1] if self.copied.shape[1] else 0
        copied = pad(self.copied, (0, wider, 0, more), value=NOT_COPIED)
        return Batch(source, source_lengths, target, target_lengths, features, copied)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Pairs, source positions, target positions; their product is the number of cells."""
        pairs, rows = self.source.shape
        return pairs, rows, self.target.shape[1]

    def parts(self, pairs: int) -> "list[Batch]":
        """The same pairs in batches of at most ``pairs``, with the same padding."""
        return [Batch(*tensors) for tensors in zip(*(tensor.split(pairs) for tensor in self), strict=True)]

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in self))


def _mirrored(tokens: Tensor, lengths: Tensor) -> Tensor:
    """Padded sequences in reverse order, each up to its end symbol."""
    position = torch.arange(tokens.shape[1], device=tokens.device)
    mirrored = lengths[:, None] - 2 - position
    return tokens.gather(1, torch.where(mirrored >= 0, mirrored, position))
