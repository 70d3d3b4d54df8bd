"""A lexicon in one small file, of which only the blocks that are asked for are unpacked.

The first line is JSON: ``symbols``, and of every block its first word and its size in bytes. Then come the blocks, each
compressed by zlib: lines ``word<TAB>readings`` in the order of code points, readings between tabs, a character of
``symbols``' order for each phoneme.
"""

import json
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

Readings = tuple[tuple[str, ...], ...]
"""The readings of a word, each a tuple of phonemes, the preferred one first."""
_FIRST_CHARACTER = ord("0")
"""The character of the first symbol; the others follow."""
_WORDS_PER_BLOCK = 512


class CompactLexicon(Mapping[str, Readings]):
    """The readings of words; a block of the file is unpacked when one of its words is first looked up."""

    def __init__(self, path: Path) -> None:
        head, _, self._blocks = path.read_bytes().partition(b"\n")
        header = json.loads(head)
        self._symbols: list[str] = header["symbols"]
        self._first: list[str] = header["first"]
        self._ends = list(accumulate(header["sizes"]))
        self._size: int = header["words"]
        self._unpacked: dict[int, dict[str, str]] = {}

    def __getitem__(self, word: str) -> Readings:
        coded = self._block(bisect_right(self._first, word) - 1)[word]
        first = _FIRST_CHARACTER
        return tuple(tuple(self._symbols[ord(each) - first] for each in reading) for reading in coded.split("\t"))

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and word in self._block(bisect_right(self._first, word) - 1)

    def __iter__(self) -> Iterator[str]:
        for number in range(len(self._first)):
            yield from self._block(number)

    def __len__(self) -> int:
        return self._size

    def _block(self, number: int) -> dict[str, str]:
        """The coded readings of the words of a block; none before the first."""
        if number < 0:
            return {}
        found = self._unpacked.get(number)
        if found is None:
            start = self._ends[number - 1] if number else 0
            text = zlib.decompress(self._blocks[start : self._ends[number]]).decode()
            rows = (line.partition("\t") for line in text.split("\n"))
            found = self._unpacked[number] = {word: coded for word, _, coded in rows}
        return found


def pack(readings: Iterable[tuple[str, Readings]], symbols: Sequence[str]) -> bytes:
    """The bytes of a file for ``CompactLexicon``, the same for the same readings."""
    code = {symbol: chr(_FIRST_CHARACTER + number) for number, symbol in enumerate(symbols)}
    rows = sorted((word, "\t".join("".join(map(code.__getitem__, each)) for each in found)) for word, found in readings)
    blocks = [rows[start : start + _WORDS_PER_BLOCK] for start in range(0, len(rows), _WORDS_PER_BLOCK)]
    packed = [zlib.compress("\n".join("\t".join(row) for row in block).encode(), 9) for block in blocks]
    header = {
        "words": len(rows),
        "symbols": list(symbols),
        "first": [block[0][0] for block in blocks],
        "sizes": [len(block) for block in packed],
    }
    return b"\n".join([json.dumps(header, separators=(",", ":")).encode(), b"".join(packed)])
