"""Reads pretrained word vectors: GloVe text, word2vec text and binary, npz.

Only the requested vectors are kept, so a file of any size can be read.
"""

import math
import zipfile
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from antiphon.exceptions import InputError
from antiphon.torch_free.readers import is_count, named_errors, open_file, read_lines

Vector = NDArray[np.float32]
_MAX_ELEMENTS = 2**15
"""Largest size of a vector."""
_LARGEST = 1_000_000
"""Largest absolute value in a vector; larger ones break training."""
_LONGEST_WORD = 2**12
"""Longest word of a binary file, in bytes."""
_NAMES_OF_UNKNOWN = ("<unk>", "unk", "UNKNOWN", "*UNKNOWN*")
_EXPECTED = "expected an npz file, as numpy.savez writes it"


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
        elif room and word not in kept and _is_word(word):
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
    """Lines of a word and its vector; word2vec starts with a line of two counts."""
    width = 0
    for line_number, line in enumerate(read_lines(path), 1):
        where = f"{path}:{line_number}"
        word, *values = line.rstrip().split(" ")
        if line_number == 1 and len(values) == 1 and is_count(word) and is_count(values[0]):
            width = int(values[0])
            _check_width(width, where)
            continue
        width = width or len(values)
        if len(values) != width or not width:
            raise InputError(f"{where}: {len(values)} numbers after {word[:60]!r}, expected {width or 'some'}")
        yield word, _bounded(_parse_values(values, where), where)


def _read_binary(path: Path) -> Iterator[tuple[str, Vector]]:
    """A line of two counts; then each word, a space, and its vector as bytes."""
    with named_errors(path, "a word2vec file"), open_file(path) as file:
        header = file.readline(_LONGEST_WORD).decode("ascii", "replace").split()
        if len(header) != 2 or not all(map(is_count, header)):
            raise InputError(f"{path}: not a word2vec file, expected a first line of two counts")
        words, width = map(int, header)
        _check_width(width, f"{path}:1")
        for index in range(1, words + 1):
            word = _read_word(file, f"{path}: word {index}")
            values = file.read(4 * width)
            if len(values) != 4 * width:
                raise InputError(f"{path}: ends in word {index} of {words}, expected {width} numbers for each")
            yield word, _bounded(np.frombuffer(values, "<f4"), f"{path}: word {index}")


def _read_word(file: BinaryIO, where: str) -> str:
    letters = bytearray()
    while (letter := file.read(1)) not in (b" ", b""):
        letters += letter
        if len(letters) > _LONGEST_WORD:
            raise InputError(f"{where}: more than {_LONGEST_WORD:,} bytes without a space, expected a word")
    return letters.decode("utf-8", "replace").lstrip("\n")


def _read_npz(path: Path) -> Iterator[tuple[str, Vector]]:
    """Arrays ``words`` and ``vectors``, and perhaps ``unknown``."""
    arrays = read_arrays(path, ("words", "vectors", "unknown"))
    if not {"words", "vectors"} <= arrays.keys():
        raise InputError(f"{path}: no arrays named words and vectors, expected both")
    words, vectors = arrays["words"], arrays["vectors"]
    if words.dtype.kind not in "US" or words.ndim != 1 or vectors.ndim != 2 or len(words) != len(vectors):
        shapes = f"words of shape {words.shape} and vectors of shape {vectors.shape}"
        raise InputError(f"{path}: {shapes}, expected one row for each word")
    rows = _bounded(_as_floats(vectors, path), str(path))
    _check_width(vectors.shape[1], str(path))
    if (unknown := arrays.get("unknown")) is not None:
        if unknown.shape != vectors.shape[1:]:
            raise InputError(f"{path}: unknown has shape {unknown.shape}, expected {vectors.shape[1:]}")
        yield _NAMES_OF_UNKNOWN[0], _bounded(_as_floats(unknown, path), str(path))
    texts = words.tolist() if words.dtype.kind == "U" else [word.decode("utf-8", "replace") for word in words.tolist()]
    yield from zip(texts, rows, strict=True)


def _is_word(word: str) -> bool:
    """Whether a word can be written on a line of a vocabulary."""
    return word.split() == [word] and word.isprintable()


def _as_floats(values: NDArray[np.generic], path: Path) -> NDArray[np.float32]:
    if values.dtype.kind not in "fiu":
        raise InputError(f"{path}: numbers of type {values.dtype}, expected floats")
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def _bounded(values: NDArray[np.float32], where: str) -> NDArray[np.float32]:
    if not (np.abs(values) <= _LARGEST).all():
        raise InputError(f"{where}: a number that is not finite or huge, expected numbers up to {_LARGEST:,}")
    return values


def _parse_values(values: list[str], where: str) -> Vector:
    try:
        with np.errstate(over="ignore"):
            return np.array(values, np.float32)
    except ValueError:
        raise InputError(f"{where}: not a number, expected a word and its vector") from None


def _check_width(width: int, where: str) -> None:
    if not 1 <= width <= _MAX_ELEMENTS:
        raise InputError(f"{where}: vectors of {width} numbers, expected 1 to {_MAX_ELEMENTS:,}")


def read_arrays(path: Path, names: Collection[str]) -> dict[str, NDArray[Any]]:
    """Those of the named arrays that the file has; no more memory is allocated than the file really holds."""
    try:
        with named_errors(path, "an npz file"), path.open("rb") as file, zipfile.ZipFile(file) as archive:
            members = {name: f"{name}.npy" for name in names if f"{name}.npy" in archive.namelist()}
            return {name: _read_array(archive, member) for name, member in members.items()}
    except (ValueError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        raise InputError(f"{path}: cannot be read ({error}), {_EXPECTED}") from None


def _read_array(archive: zipfile.ZipFile, member: str) -> NDArray[Any]:
    size = archive.getinfo(member).file_size
    with archive.open(member) as file:
        shape, is_fortran, dtype = _read_header(file)
        rest = size - file.tell()
        if dtype.hasobject or math.prod(shape) * dtype.itemsize != rest:
            raise ValueError(f"{member} holds {rest:,} bytes and claims to have shape {shape} of {dtype}")
        content = file.read(rest)
    if len(content) != rest:
        raise ValueError(f"{member} is cut short")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if is_fortran else "C")


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type of an array."""
    try:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        return read(file)
    except (OSError, zipfile.BadZipFile, zlib.error):
        raise
    except Exception as error:  # a header is a Python literal; parsing it can raise anything
        raise ValueError(f"damaged header: {error}") from None
