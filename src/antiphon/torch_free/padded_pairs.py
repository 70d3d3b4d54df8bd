"""A padded batch of pairs as numpy arrays."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from antiphon.torch_free.copied_words import NOT_COPIED, CopiedWords
from antiphon.torch_free.vocab import END, PAD

Ids = NDArray[np.int32]
Padded = NDArray[np.int64]


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

    def take(self, index: Padded) -> "PaddedPairs":
        """Some of the pairs, with the same padding."""
        return PaddedPairs(*(part[index] for part in self))

    def with_targets(self, targets: Sequence[Ids]) -> "PaddedPairs":
        """The same sources with other targets, which have no end symbol yet."""
        target, lengths = _pad(targets)
        return self._replace(target=target, target_lengths=lengths)


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
