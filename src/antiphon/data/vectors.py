"""Word vectors made elsewhere: GloVe text, word2vec text and binary, npz.

Only the vectors that are asked for are kept, so a file of any size can be read.
"""

import zipfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from antiphon.data.readers import open_file, read_lines
from antiphon.errors import InputError

Vector = NDArray[np.float32]
_NAMES_OF_UNKNOWN = ("<unk>", "unk", "UNKNOWN", "*UNKNOWN*")


@dataclass(frozen=True)
class WordVectors:
    """Words, the vector of each, and one for all other words."""

    words: tuple[str, ...]
    vectors: NDArray[np.float32]
    unknown: Vector


def read_vectors(path: Path, wanted: Collection[str], more: int = 0) -> WordVectors:
    """The vectors of the wanted words, and of the first ``more`` other words, in the file's order.

    Unknown words get the file's own vector for them, or else the mean of all that were kept.
    """
    kept: dict[str, Vector] = {}
    unknown: Vector | None = None
    room = more
    for word, vector in _read(path):
        if word in _NAMES_OF_UNKNOWN:
            unknown = vector
        elif word in wanted:
            kept.setdefault(word, vector)
        elif room and word not in kept:
            kept[word] = vector
            room -= 1
    if not any(word in kept for word in wanted):
        raise InputError(f"{path}: knows none of the {len(wanted)} words of the data, expected vectors of its language")
    vectors = np.stack(list(kept.values()))
    return WordVectors(tuple(kept), vectors, vectors.mean(0) if unknown is None else unknown)


def _read(path: Path) -> Iterator[tuple[str, Vector]]:
    if path.suffix == ".npz":
        yield from _read_npz(path)
    elif path.name.endswith((".bin", ".bin.gz")):
        yield from _read_binary(path)
    else:
        yield from _read_text(path)


def _read_text(path: Path) -> Iterator[tuple[str, Vector]]:
    """Lines of a word and its numbers; word2vec puts a line of two counts before them."""
    width = 0
    for number, line in enumerate(read_lines(path), 1):
        word, *numbers = line.rstrip().split(" ")
        if number == 1 and len(numbers) == 1 and word.isdigit() and numbers[0].isdigit():
            width = int(numbers[0])
            continue
        width = width or len(numbers)
        if len(numbers) != width or not width:
            raise InputError(f"{path}:{number}: {len(numbers)} numbers after {word!r}, expected {width or 'some'}")
        yield word, _parse_numbers(numbers, f"{path}:{number}")


def _read_binary(path: Path) -> Iterator[tuple[str, Vector]]:
    """A line of two counts; then each word, a space, and its numbers as bytes."""
    with open_file(path) as file:
        header = file.readline().split()
        if len(header) != 2 or not all(count.isdigit() for count in header):
            raise InputError(f"{path}: no word2vec file, expected a first line of two counts")
        number, width = map(int, header)
        for place in range(1, number + 1):
            word = _read_word(file)
            numbers = file.read(4 * width)
            if len(numbers) != 4 * width:
                raise InputError(f"{path}: ends in word {place} of {number}, expected {width} numbers for each")
            yield word, np.frombuffer(numbers, "<f4")


def _read_word(file: BinaryIO) -> str:
    letters = bytearray()
    while (letter := file.read(1)) not in (b" ", b""):
        letters += letter
    return letters.decode("utf-8", "replace").lstrip("\n")


def _read_npz(path: Path) -> Iterator[tuple[str, Vector]]:
    """Arrays ``words`` and ``vectors``, and perhaps ``unknown``; objects, which could execute, are not loaded."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            words, vectors = arrays["words"], arrays["vectors"]
            unknown = arrays.get("unknown")
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: not to be read ({error}), expected arrays named words and vectors") from None
    if vectors.ndim != 2 or len(words) != len(vectors):
        raise InputError(f"{path}: {len(words)} words and vectors of shape {vectors.shape}, expected one row for each")
    if unknown is not None:
        if unknown.shape != vectors.shape[1:]:
            raise InputError(f"{path}: unknown has shape {unknown.shape}, expected {vectors.shape[1:]}")
        yield _NAMES_OF_UNKNOWN[0], unknown.astype(np.float32)
    yield from zip(words.tolist(), vectors.astype(np.float32), strict=True)


def _parse_numbers(numbers: list[str], where: str) -> Vector:
    try:
        return np.array(numbers, np.float32)
    except ValueError:
        raise InputError(f"{where}: a number that is none, expected a word and its numbers") from None
