"""Vocabularies: tokens and their ids, and ids of words that are copied from the source.

A model that copies words gives those outside the target vocabulary, of size ``V``, ids of their own: a negative one, a
hash of the word's letters, as long as its sentence is not known, and ``V + i`` in a batch, ``i`` being the first
position of the word in its source. So different unknown words stay different, and an id is enough to find the word.

A word of the target that is neither in the vocabulary nor in the source is unknown. So is one that cannot be copied
because alignments are monotone: of words in a different order than in the source, as many as possible are copied.
"""

import zlib
from collections.abc import Iterable, Sequence
from itertools import repeat
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from antiphon.exceptions import InputError

PAD, UNKNOWN, START, END = range(4)
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
NO_COUNTERPART = -1
"""Instead of a target id, for a source token that has no counterpart."""
NOT_COPIED = -1
"""Instead of an id, for positions of a batch that have no word."""
HIDDEN = int(np.iinfo(np.int32).min)
"""The id of a known word that training makes unknown on both sides of a pair, so that it has to be copied."""

Ids = NDArray[np.int32]


class Vocab:
    """Tokens with ids from 0: four special ones, then the rest from frequent to rare."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self.tokens: tuple[str, ...] = (*SPECIALS, *tokens)
        # Text that looks like a special symbol is unknown.
        self._ids = {token: id_ for id_, token in enumerate(self.tokens) if id_ >= len(SPECIALS)}

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: str) -> bool:
        return token in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocab) and self.tokens == other.tokens

    def __hash__(self) -> int:
        return hash(self.tokens)

    def encode(self, tokens: Iterable[str]) -> Ids:
        """The id of each token."""
        return np.fromiter(map(self._ids.get, tokens, repeat(UNKNOWN)), np.int32)

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The tokens up to the end symbol, without special ones other than <unk>."""
        tokens = []
        for id_ in ids:
            if id_ == END:
                break
            if id_ not in (PAD, START):
                tokens.append(self.tokens[id_])
        return tokens

    def ids_in(self, other: "Vocab") -> NDArray[np.int64]:
        """The id of each token in another vocabulary; unknown if it is missing there."""
        ids = other.encode(self.tokens).astype(np.int64)
        ids[: len(SPECIALS)] = np.arange(len(SPECIALS))
        return ids

    def save(self, path: Path) -> None:
        """Writes one token per line, special ones included."""
        path.write_text("".join(f"{token}\n" for token in self.tokens), encoding="utf-8", newline="\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads what ``save`` wrote."""
        try:
            with path.open(encoding="utf-8", newline="\n") as lines:
                *tokens, rest = lines.read().split("\n")
        except UnicodeDecodeError:
            raise InputError(f"{path}: damaged, expected one token per line in UTF-8") from None
        if rest:
            raise InputError(f"{path}: cut short, expected a last line that ends")
        if tuple(tokens[: len(SPECIALS)]) != SPECIALS:
            raise InputError(f"{path}: not a vocabulary, expected its first lines to be {' '.join(SPECIALS)}")
        return cls(tokens[len(SPECIALS) :])


class TokenCounts(dict[str, int]):
    """Tokens with provisional ids, in the order of their first appearance, and their counts."""

    def __init__(self) -> None:
        self.counts = np.zeros(0, np.int64)

    def __missing__(self, token: str) -> int:
        id_ = self[token] = len(self)
        return id_

    def encode(self, tokens: Iterable[str]) -> Ids:
        """The id of each token; new tokens get new ids."""
        ids = np.fromiter(map(self.__getitem__, tokens), np.int32)
        counts = np.bincount(ids, minlength=len(self))
        counts[: len(self.counts)] += self.counts
        self.counts = counts
        return ids

    def vocab(self, min_count: int = 1) -> Vocab:
        """All tokens that appeared at least ``min_count`` times, from frequent to rare."""
        counted = zip(self, self.counts.tolist(), strict=True)
        kept = [(token, count) for token, count in counted if count >= min_count]
        return Vocab(token for token, _ in sorted(kept, key=lambda each: (-each[1], each[0])) if token not in SPECIALS)


class WordIds(NamedTuple):
    """A target vocabulary that gives unknown words negative ids of their own."""

    vocab: Vocab

    def encode(self, words: Iterable[str]) -> Ids:
        """The id of each word."""
        words = list(words)
        ids = self.vocab.encode(words)
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
