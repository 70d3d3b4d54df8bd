"""The numbering of tokens."""

from collections.abc import Iterable, Sequence
from itertools import repeat
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow
from numpy.typing import NDArray

from antiphon.exceptions import InputError

PAD, UNKNOWN, START, END = range(4)
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
NO_COUNTERPART = -1
"""In place of the target id that a source token is tied to, where there is none."""


class Vocab:
    """Tokens numbered from 0: four special ones, then the rest from frequent to rare."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self.tokens: tuple[str, ...] = (*SPECIALS, *tokens)
        # Text that happens to read like a special symbol is unknown text; a written <unk> means just that.
        self._numbers = {token: number for number, token in enumerate(self.tokens) if number >= len(SPECIALS)}

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: str) -> bool:
        return token in self._numbers

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocab) and self.tokens == other.tokens

    def __hash__(self) -> int:
        return hash(self.tokens)

    def encode(self, tokens: Iterable[str]) -> NDArray[np.int32]:
        """The number of each token."""
        return np.fromiter(map(self._numbers.get, tokens, repeat(UNKNOWN)), np.int32)

    def encode_many(self, tokens: Sequence[str]) -> NDArray[np.int32]:
        """The number of each token, quickly where there are many of few kinds."""
        distinct, places = _distinct(tokens)
        return self.encode(distinct)[places]

    def decode(self, numbers: Iterable[int]) -> list[str]:
        """The tokens up to the end symbol, without special ones other than <unk>."""
        tokens = []
        for number in numbers:
            if number == END:
                break
            if number not in (PAD, START):
                tokens.append(self.tokens[number])
        return tokens

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
            raise InputError(f"{path}: no vocabulary, expected its first lines to be {' '.join(SPECIALS)}")
        return cls(tokens[len(SPECIALS) :])


class TokenCounts(dict[str, int]):
    """Tokens numbered from 0 in the order of their first appearance, and how often each appeared."""

    def __init__(self) -> None:
        self.counts = np.zeros(0, np.int64)

    def __missing__(self, token: str) -> int:
        number = self[token] = len(self)
        return number

    def encode_many(self, tokens: Sequence[str]) -> NDArray[np.int32]:
        """The number of each token; new tokens get new numbers."""
        distinct, places = _distinct(tokens)
        numbers = np.fromiter(map(self.__getitem__, distinct), np.int32)[places]
        counts = np.bincount(numbers, minlength=len(self))
        counts[: len(self.counts)] += self.counts
        self.counts = counts
        return numbers

    def vocab(self, min_count: int = 1) -> Vocab:
        """All tokens that appeared at least ``min_count`` times, from frequent to rare."""
        counted = zip(self, self.counts.tolist(), strict=True)
        kept = [(token, count) for token, count in counted if count >= min_count]
        return Vocab(token for token, _ in sorted(kept, key=lambda each: (-each[1], each[0])) if token not in SPECIALS)


def _distinct(tokens: Sequence[str]) -> tuple[list[str], NDArray[np.int32]]:
    """Every distinct token once, and the place of each token among them: Arrow finds them faster than a dictionary."""
    found = pyarrow.array(tokens, pyarrow.string()).dictionary_encode()
    return found.dictionary.to_pylist(), found.indices.to_numpy()
