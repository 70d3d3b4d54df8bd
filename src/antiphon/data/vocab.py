"""The numbering of tokens."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from antiphon.errors import InputError

PAD, UNKNOWN, START, END = range(4)
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")


class Vocab:
    """Tokens numbered from 0: four special ones, then the rest from frequent to rare."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self.tokens: tuple[str, ...] = (*SPECIALS, *tokens)
        # Text that happens to read like a special symbol is unknown text; a written <unk> means just that.
        self._numbers = {token: number for number, token in enumerate(self.tokens) if number >= len(SPECIALS)}

    @classmethod
    def of_counts(cls, counts: Counter[str], min_count: int = 1) -> Self:
        """The vocabulary of all tokens seen at least ``min_count`` times."""
        kept = (token for token, count in counts.items() if count >= min_count and token not in SPECIALS)
        return cls(sorted(kept, key=lambda token: (-counts[token], token)))

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
        return np.fromiter((self._numbers.get(token, UNKNOWN) for token in tokens), np.int32)

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
        with path.open(encoding="utf-8", newline="\n") as lines:
            tokens: Sequence[str] = lines.read().split("\n")[:-1]
        if tuple(tokens[: len(SPECIALS)]) != SPECIALS:
            raise InputError(f"{path}: no vocabulary, expected its first lines to be {' '.join(SPECIALS)}")
        return cls(tokens[len(SPECIALS) :])
