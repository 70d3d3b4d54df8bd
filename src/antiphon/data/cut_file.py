"""Text files cut into parts of a fixed number of lines, each of which can be read without those before it."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from antiphon.torch_free.files import decode_lines, named_errors, open_file

_BLOCK = 2**20
_LINE_END = 10


@dataclass(frozen=True)
class CutFile:
    """Where the parts of a file begin, in bytes of its unpacked contents, and what identifies these."""

    path: Path
    lines_per_part: int
    starts: tuple[int, ...]
    lines: int
    bytes: int
    sha256: str

    def line_numbers(self, part: int) -> range:
        """The numbers of the lines of a part, from 1."""
        first = part * self.lines_per_part + 1
        return range(first, min(first + self.lines_per_part, self.lines + 1))

    def read(self, parts: Iterable[int]) -> Iterator[tuple[int, str]]:
        """Every line of some parts, which are in ascending order, with its number."""
        with named_errors(self.path), open_file(self.path) as file:
            for part in parts:
                file.seek(self.starts[part])
                numbers = self.line_numbers(part)
                lines = decode_lines(file, str(self.path), numbers.start)
                yield from zip(numbers, islice(lines, len(numbers)), strict=True)


def cut_file(path: Path, lines_per_part: int) -> CutFile:
    """The parts of a file, which is read once, block by block."""
    digest, starts, lines, size, last = hashlib.sha256(), [0], 0, 0, b""
    with named_errors(path), open_file(path) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _LINE_END)
            first = -(lines + 1) % lines_per_part  # index of the first line end at which a part ends
            starts += (size + 1 + ends[first::lines_per_part]).tolist()
            lines, size, last = lines + len(ends), size + len(block), block[-1:]
    lines += bool(last.strip(b"\n"))
    parts = -(-lines // lines_per_part)
    return CutFile(path, lines_per_part, tuple(starts[:parts]), lines, size, digest.hexdigest())
