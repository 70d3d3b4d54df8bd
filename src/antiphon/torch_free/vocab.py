"""Vocabularies: tokens and their ids."""

from collections.abc import Iterable, Sequence
from itertools import repeat
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from antiphon.exceptions import InputError

PAD, UNKNOWN, START, END = range(4)
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
NO_COUNTERPART = -1
"""Instead of a target id, for a source token that is not tied to any."""


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

    def encode(self, tokens: Iterable[str]) -> NDArray[np.int32]:
        """The id of each token."""
        return np.fromiter(map(self._ids.get, tokens, repeat(UNKNOWN)), np.int32)

    def encode_many(self, tokens: Sequence[str]) -> NDArray[np.int32]:
        """The id of each token; fast for many tokens of few types."""
        distinct, inverse = _distinct(tokens)
        return self.encode(distinct)[inverse]

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

    def encode_many(self, tokens: Sequence[str]) -> NDArray[np.int32]:
        """The id of each token; new tokens get new ids."""
        distinct, inverse = _distinct(tokens)
        ids = np.fromiter(map(self.__getitem__, distinct), np.int32)[inverse]
        counts = np.bincount(ids, minlength=len(self))
        counts[: len(self.counts)] += self.counts
        self.counts = counts
        return ids

    def vocab(self, min_count: int = 1) -> Vocab:
        """All tokens that appeared at least ``min_count`` times, from frequent to rare."""
        counted = zip(self, self.counts.tolist(), strict=True)
        kept = [(token, count) for token, count in counted if count >= min_count]
        return Vocab(token for token, _ in sorted(kept, key=lambda each: (-each[1], each[0])) if token not in SPECIALS)


def _distinct(tokens: Sequence[str]) -> tuple[list[str], NDArray[np.int32]]:
    """Every distinct token once, and the index of each token among them: faster by Arrow than by a dictionary."""
    import pyarrow  # only corpora need it

    found = pyarrow.array(tokens, pyarrow.string()).dictionary_encode()
    return found.dictionary.to_pylist(), found.indices.to_numpy()
