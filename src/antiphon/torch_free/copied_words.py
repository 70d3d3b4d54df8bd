"""Ids of words that are copied from the source, in particular of words outside the target vocabulary.

A word has the id of the target vocabulary of size ``V``. One outside of it has a negative id, a hash of its letters, as
long as its sentence is not known, and ``V + i`` in a batch, ``i`` being the first position of the word in its source.
So different unknown words stay different, and an id is enough to find the word.

A word of the target that is neither in the vocabulary nor in the source is unknown. So is one that cannot be copied
because alignments are monotone: of words in a different order than in the source, as many as possible are copied.
"""

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from antiphon.torch_free.vocab import UNKNOWN, Vocab

NOT_COPIED = -1
"""Instead of an id, for positions of a batch that have no word."""
HIDDEN = int(np.iinfo(np.int32).min)
"""The id of a known word that training makes unknown on both sides of a pair, so that it has to be copied."""

Ids = NDArray[np.int32]


class WordIds(NamedTuple):
    """A target vocabulary that gives unknown words negative ids of their own."""

    vocab: Vocab

    def encode(self, words: Sequence[str]) -> Ids:
        """The id of each word."""
        return self._with_hashes(self.vocab.encode(words), words)

    def encode_many(self, words: Sequence[str]) -> Ids:
        """The id of each word; fast for many words of few types."""
        return self._with_hashes(self.vocab.encode_many(words), words)

    def _with_hashes(self, ids: Ids, words: Sequence[str]) -> Ids:
        for position in np.flatnonzero(ids == UNKNOWN).tolist():
            ids[position] = -1 - (zlib.crc32(words[position].encode()) >> 1)
        return ids


class CopiedWords(NamedTuple):
    """The words of every source of a batch as target ids, negative if unknown, and the size of the vocabulary."""

    ids: Sequence[Ids]
    size: int

    def extended(self) -> list[Ids]:
        """The ids of every source, unknown words by their first position."""
        return [_replace(ids, _first_positions(ids, self.size)) for ids in self.ids]

    def extended_targets(self, targets: Sequence[Ids]) -> list[Ids]:
        """The ids of every target, unknown words by their first position in the source."""
        return [_extend_target(target, ids, self.size) for target, ids in zip(targets, self.ids, strict=True)]


def _first_positions(ids: Ids, size: int) -> dict[int, int]:
    """The id in the batch of every unknown word of a source."""
    found: dict[int, int] = {}
    for position in np.flatnonzero(ids < 0).tolist():
        found.setdefault(int(ids[position]), size + position)
    return found


def _replace(ids: Ids, new: dict[int, int]) -> Ids:
    """The ids with negative ones replaced by their new ids, or by unknown if they have none."""
    replaced = ids.copy()
    for position in np.flatnonzero(ids < 0).tolist():
        replaced[position] = new.get(int(ids[position]), UNKNOWN)
    return replaced


def _extend_target(target: Ids, source: Ids, size: int) -> Ids:
    """The ids of a target in the batch; unknown words that cannot be copied in order stay unknown."""
    unknown = np.flatnonzero(target < 0)
    extended = _replace(target, _first_positions(source, size) if len(unknown) else {})
    copied = unknown[extended[unknown] >= size]
    if len(copied) > 1:
        chain = _longest_chain([np.flatnonzero(source == target[position]).tolist() for position in copied])
        extended[np.delete(copied, chain)] = UNKNOWN
    return extended


def _longest_chain(choices: Sequence[Sequence[int]]) -> list[int]:
    """The indices of as many words as possible that can be copied in order; ``choices`` has the positions of each.

    ``best[n]`` is the chain of ``n`` words that ends earliest, with the position of its end.
    """
    best: list[tuple[int, list[int]]] = [(0, [])]
    for word, positions in enumerate(choices):
        for length in reversed(range(len(best))):
            end, chain = best[length]
            found = next((position for position in positions if position >= end), None)
            if found is not None and (length + 1 == len(best) or found < best[length + 1][0]):
                best[length + 1 : length + 2] = [(found, [*chain, word])]
    return best[-1][1]
