"""Batches of pairs: which pairs form one, those of similar length, and their padded ids as numpy arrays."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from antiphon.torch_free.vocab import END, NOT_COPIED, PAD, CopiedWords, Ids

Padded = NDArray[np.int64]
_BATCHES_PER_POOL = 50


class PaddedPairs(NamedTuple):
    """Token ids padded on the right, as ``data/batch.py`` describes them."""

    source: Padded
    source_lengths: Padded
    target: Padded
    target_lengths: Padded
    features: Padded
    copied: Padded

    @classmethod
    def of(
        cls,
        sources: Sequence[Ids],
        targets: Sequence[Ids] | None = None,
        features: Sequence[Ids] | None = None,
        *,
        max_features: int = 0,
        copied: CopiedWords | None = None,
    ) -> "PaddedPairs":
        """The batch of these sequences, which have no end symbol yet; missing sides are empty.

        There are columns for at least ``max_features`` features.
        """
        nothing = [np.zeros(0, np.int32)] * max(len(sources), len(targets or ()))
        columns = max([max_features, *map(len, features or ())])
        if copied is not None and targets is not None:
            targets = copied.extended_targets(targets)
        source, source_lengths = _pad(sources)
        return cls(
            source,
            source_lengths,
            *_pad(nothing if targets is None else targets),
            _pad_to(columns, features or nothing),
            _pad_to(source.shape[1], copied.extended(), NOT_COPIED) if copied else source[:, :0],
        )

    def reversed(self) -> "PaddedPairs":
        """The same pairs read from the end; end symbols and padding stay where they are. Not for copied words."""
        sides = (self.source, self.source_lengths), (self.target, self.target_lengths)
        source, target = (_mirrored(tokens, lengths) for tokens, lengths in sides)
        return self._replace(source=source, target=target)

    def paired(self, index: Sequence[int], outputs: Sequence[Sequence[int]]) -> "PaddedPairs":
        """A pair for each output, which ends in the end symbol; ``index`` has the number of its source."""
        target, lengths = _pad([np.array(output[:-1], np.int32) for output in outputs])
        sources = (part[np.array(index)] for part in self)
        return PaddedPairs(*sources)._replace(target=target, target_lengths=lengths)


def _mirrored(tokens: Padded, lengths: Padded) -> Padded:
    """Padded sequences in reverse order, each up to its end symbol."""
    position = np.arange(tokens.shape[1])
    mirrored = lengths[:, None] - 2 - position
    return np.take_along_axis(tokens, np.where(mirrored >= 0, mirrored, position), 1)


def _pad(sequences: Sequence[Ids]) -> tuple[Padded, Padded]:
    lengths = np.array([len(sequence) + 1 for sequence in sequences], np.int64)
    padded = _pad_to(int(lengths.max()) if len(sequences) else 1, sequences)
    padded[np.arange(len(sequences)), lengths - 1] = END
    return padded, lengths


def _pad_to(columns: int, sequences: Sequence[Ids], padding: int = PAD) -> Padded:
    padded = np.full((len(sequences), columns), padding, np.int64)
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
    padded[np.arange(columns) < lengths[:, None]] = np.concatenate([*sequences, np.zeros(0, np.int32)])
    return padded


def plan_batches(
    source_lengths: Padded,
    target_lengths: Padded,
    *,
    batch_size: int,
    max_cells: int,
    order: np.random.Generator | None = None,
) -> list[Padded]:
    """Indices of the pairs of each batch: at most ``batch_size`` pairs and ``max_cells`` padded lattice cells.

    Pairs are shuffled, sorted by length inside pools of some fifty batches, cut into batches, and the batches
    shuffled again, all by ``order``. Without it, pairs are sorted by length as a whole.
    """
    indices = np.arange(len(source_lengths)) if order is None else order.permutation(len(source_lengths))
    pool = len(indices) if order is None else batch_size * _BATCHES_PER_POOL
    batches: list[Padded] = []
    for first in range(0, len(indices), max(1, pool)):
        members = indices[first : first + pool]
        by_length = members[np.lexsort((target_lengths[members], source_lengths[members]))]
        batches.extend(_split_batches(by_length, source_lengths, target_lengths, batch_size, max_cells))
    return batches if order is None else [batches[index] for index in order.permutation(len(batches))]


def _split_batches(
    indices: Padded,
    source_lengths: Padded,
    target_lengths: Padded,
    batch_size: int,
    max_cells: int,
) -> Iterator[Padded]:
    """Pairs sorted by length, split into the largest batches that both bounds allow."""
    sources, targets = source_lengths[indices], target_lengths[indices]
    first = 0
    while first < len(indices):
        # No batch can be longer than one of pairs as short as its first.
        reach = min(batch_size, max(1, max_cells // max(1, int(sources[first] * targets[first]))))
        columns = np.maximum.accumulate(targets[first : first + reach])
        cells = np.arange(1, len(columns) + 1) * sources[first : first + reach] * columns
        last = first + max(1, int(np.searchsorted(cells, max_cells, side="right")))
        yield indices[first:last]
        first = last
