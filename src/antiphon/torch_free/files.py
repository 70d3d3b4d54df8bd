"""Files as bytes, lines and text: of bounded size, unpacked if gzipped, read once if they are pipes."""

import gzip
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import BinaryIO, cast

from antiphon.exceptions import InputError

STANDARD_INPUT = "standard input"
MAX_LINE_BYTES = 2**20
MAX_TEXT_BYTES = 2**24
"""Limit for a file that is read as a whole, such as a recipe."""
WRITER_SECONDS = 5.0
"""Seconds to wait for a writer of a named pipe."""


def read_lines(path: Path) -> Iterator[str]:
    """Every line of a UTF-8 file, without its line end."""
    with named_errors(path), open_file(path) as file:
        yield from decode_lines(file, str(path))


def read_standard_input() -> Iterator[str]:
    """Every line of standard input, as it arrives."""
    if sys.stdin is None:
        raise InputError(f"{STANDARD_INPUT}: closed, expected text to read")
    with named_errors(Path(STANDARD_INPUT), "text to read"):
        yield from decode_lines(sys.stdin.buffer, STANDARD_INPUT)


def decode_lines(file: BinaryIO, name: str, first: int = 1) -> Iterator[str]:
    """Every line of a stream of UTF-8, without its line end.

    ``name`` is its name in messages, and ``first`` the number of the line that is read first.
    """
    line_number = first - 1
    while line := file.readline(MAX_LINE_BYTES + 1):
        line_number += 1
        if line_number == 1:
            _refuse_other_format(line, name)
        if len(line) > MAX_LINE_BYTES:
            raise InputError(
                f"{name}:{line_number}: a line of more than {MAX_LINE_BYTES:,} bytes, expected shorter lines"
            )
        yield _decode_line(line, name, line_number)


def read_text(path: Path, limit: int = MAX_TEXT_BYTES) -> str:
    """The text of a small UTF-8 file; a large one is a ``ValueError``."""
    with _open_stream(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"more than {limit:,} bytes")
    return content.decode("utf-8")


def open_file(path: Path) -> BinaryIO:
    """The bytes of a file, unpacked if its name ends in ``.gz``."""
    file = _open_stream(path)
    if path.suffix != ".gz":
        return file
    unpacked = gzip.GzipFile(fileobj=file)
    unpacked.myfileobj = cast(FileIO, file)  # closed along with it
    return cast(BinaryIO, unpacked)


def is_count(text: str) -> bool:
    """Whether a text is a whole number in digits, small enough to be a count."""
    return text.isascii() and text.isdigit() and len(text) <= 18


def is_pipe(path: Path) -> bool:
    """Whether a path names something that can be read only once: a pipe, a terminal, another device."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


@contextmanager
def named_errors(path: Path, expected: str = "a readable text file") -> Iterator[None]:
    """Inside, errors of a file become one sentence that names it."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path}: damaged gzip file ({error}), expected a whole one") from error
    except IsADirectoryError as error:
        raise InputError(f"{path}: a folder, expected a text file") from error
    except OSError as error:
        raise InputError(f"{path}: {(error.strerror or str(error)).lower()}, expected {expected}") from error


_OTHER_FORMATS = {
    b"\x1f\x8b": ("gzipped", "text; unpack it with gunzip, or give it a name that ends in .gz"),
    b"\xff\xfe": ("UTF-16", "UTF-8; convert it: iconv -f UTF-16 -t UTF-8 OLD > NEW"),
    b"\xfe\xff": ("UTF-16", "UTF-8; convert it: iconv -f UTF-16 -t UTF-8 OLD > NEW"),
    b"PAR1\x15": (
        "Parquet",
        "text; convert it: pandas.read_parquet(OLD).to_csv(NEW, sep='\\t', header=False, index=False)",
    ),
    b"PK\x03\x04": ("a zip file or a spreadsheet", "text; unpack it, or save it as tab-separated text"),
}
"""What a file seems to be by its first bytes, and what is expected instead."""


def _refuse_other_format(line: bytes, name: str) -> None:
    """Refuses a first line that is not text but the start of another format."""
    for start, (found, expected) in _OTHER_FORMATS.items():
        if line.startswith(start):
            raise InputError(f"{name}: seems to be {found}, expected {expected}")


def _decode_line(line: bytes, name: str, line_number: int) -> str:
    """A line of UTF-8 without its line end; the first may start with a byte order mark."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{name}:{line_number}: byte {error.start + 1} is not UTF-8, expected UTF-8 text") from error
    return text.removeprefix("\ufeff" if line_number == 1 else "").rstrip("\r\n")


def _open_stream(path: Path) -> BinaryIO:
    """The bytes of a file; a named pipe without a writer for some seconds is an error."""
    if not stat.S_ISFIFO(path.stat().st_mode):
        return path.open("rb")
    opened: SimpleQueue[BinaryIO | OSError] = SimpleQueue()
    Thread(target=_open_pipe, args=(path, opened), daemon=True).start()
    try:
        found = opened.get(timeout=WRITER_SECONDS)
    except Empty:
        _release(path)
        raise InputError(
            f"{path}: a named pipe that nothing writes into, expected a writer within {WRITER_SECONDS:g} seconds"
        ) from None
    if isinstance(found, OSError):
        raise found
    return found


def _open_pipe(path: Path, opened: "SimpleQueue[BinaryIO | OSError]") -> None:
    """Waits for a writer, as opening a named pipe does."""
    try:
        opened.put(path.open("rb"))
    except OSError as error:
        opened.put(error)


def _release(path: Path) -> None:
    """Unblocks the thread that is opening the pipe, by opening it for writing."""
    with suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
