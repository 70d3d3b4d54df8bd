"""Text files as lines, pairs and sources: of bounded size, unpacked if gzipped, read once if they are pipes."""

import gzip
import os
import re
import stat
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import BinaryIO, Literal, NamedTuple, cast

from antiphon.exceptions import InputError
from antiphon.terminal import count_of

STANDARD_INPUT = "standard input"
MAX_LINE_BYTES = 2**20
MAX_TEXT_BYTES = 2**24
"""Limit for a file that is read as a whole, such as a recipe."""
WRITER_SECONDS = 5.0
"""Seconds to wait for a writer of a named pipe."""


def read_lines(path: Path) -> Iterator[str]:
    """Every line of a UTF-8 file, without its line end.

    More than a million blank lines among fewer others are refused: a small gzip file may have billions.
    """
    blank = filled = 0
    with named_errors(path), open_file(path) as file:
        for line in decode_lines(file, str(path)):
            if line and not line.isspace():
                filled += 1
            else:
                blank += 1
                if blank > max(MAX_BLANK_LINES, filled):
                    raise InputError(f"{path}:{blank + filled}: {blank:,} blank lines, expected fewer than others")
            yield line


def read_standard_input() -> Iterator[str]:
    """Every line of standard input, as it arrives."""
    if sys.stdin is None:
        raise InputError(f"{STANDARD_INPUT}: closed, expected text to read")
    with named_errors(Path(STANDARD_INPUT), "text to read"):
        yield from decode_lines(sys.stdin.buffer, STANDARD_INPUT)


def decode_lines(file: BinaryIO, name: str) -> Iterator[str]:
    """Every line of a stream of UTF-8, without its line end; ``name`` is its name in messages."""
    line_number = 0
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


Files = Path | tuple[Path, Path]
"""One TSV file of pairs, or two parallel text files."""
NumberedLines = Iterable[tuple[int, str]]
"""Lines of text with their numbers in a file."""
ColumnOrder = Literal["source target features", "source features target", "features source target"]
"""The columns of a TSV; a file without features has the other two in this order."""
SOURCE_TARGET_FEATURES: ColumnOrder = "source target features"
_SEPARATORS = re.compile(r"[;,|\s]+")
"""What separates the features of a tag."""
_PIECES = re.compile(r"[;,|\s]+|[()]|[^;,|\s()]+")
MAX_BLANK_LINES = 10**6
"""Blank lines of a file, if it has fewer others."""
_LONGEST_LAYERED = 200
"""Characters of the longest feature that is taken apart, since its name is repeated in every part."""


class Pair(NamedTuple):
    """A source, its target and the features that go with them; ``where`` is ``file:line``."""

    source: str
    target: str
    features: tuple[str, ...]
    where: str


class Source(NamedTuple):
    """An input with its features."""

    text: str
    features: tuple[str, ...] = ()


def read_pairs(
    files: Files,
    *,
    features: bool | None = None,
    swap: bool = False,
    columns: ColumnOrder = SOURCE_TARGET_FEATURES,
) -> Iterator[Pair]:
    """Every pair of a TSV with the given columns, or of two parallel files, blank ones included.

    The column of features is required if ``features`` is true and ignored if it is false. ``swap`` exchanges source
    and target.
    """
    if features and isinstance(files, tuple):
        raise InputError(f"{files[0]}: no features in parallel files, {_features_expected(columns)}")
    pairs = _read_parallel(*files) if isinstance(files, tuple) else _read_tsv(files, features, columns)
    for pair in pairs:
        yield pair._replace(source=pair.target, target=pair.source) if swap else pair


def read_targets(
    files: Files,
    *,
    features: bool = False,
    swap: bool = False,
    columns: ColumnOrder = SOURCE_TARGET_FEATURES,
) -> Iterator[Pair]:
    """The targets of a file of pairs, or the lines of a text file, as pairs without a source."""
    if isinstance(files, tuple):
        return (pair._replace(source="", features=()) for pair in read_pairs(files, swap=swap))
    return _read_targets(files, features, swap, columns)


def read_unpaired(path: Path, *, features: bool = False) -> Iterator[Pair]:
    """The lines of a file of unpaired text, or of ``text<TAB>features``, as pairs without a source."""
    for line_number, line in enumerate(read_lines(path), 1):
        text, *rest = line.split("\t")
        where = f"{path}:{line_number}"
        if len(rest) > 1:
            raise InputError(f"{where}: {count_of(len(rest) + 1, 'column')}, expected text or text<TAB>features")
        yield Pair("", text, split_features(rest[0]) if features and rest else (), where)


def is_filled(pair: Pair, *, targets_only: bool = False) -> bool:
    """Whether a pair has text on both sides; with ``targets_only``, whether its target has text."""
    return bool(pair.target.strip() and (targets_only or pair.source.strip()))


def keep_filled(pairs: Iterable[Pair], name: object, *, targets_only: bool = False) -> list[Pair]:
    """The pairs that have text on both sides; a file without any is an error."""
    filled = [pair for pair in pairs if is_filled(pair, targets_only=targets_only)]
    if not filled:
        raise no_pairs(name)
    return filled


def no_pairs(name: object) -> InputError:
    """The error of a file without pairs."""
    return InputError(f"{name}: no pairs, expected lines of source<TAB>target")


def pair_files(paths: Sequence[Path]) -> Files:
    """One TSV or two parallel files, from the paths that name them."""
    if len(paths) == 1:
        return paths[0]
    if len(paths) == 2:
        return paths[0], paths[1]
    raise InputError(f"{paths[2]}: a third file, expected one TSV of pairs or two parallel text files")


def parse_source(
    line: str,
    where: str,
    *,
    features: bool = False,
    swap: bool = False,
    columns: ColumnOrder = SOURCE_TARGET_FEATURES,
) -> Source:
    """The input on a line to predict from.

    A line is a full pair or one without its target, which is ignored; with ``swap`` the source is. A blank line is an
    empty input.
    """
    if not line.strip():
        return Source("")
    cells = line.split("\t")
    read, ignored = ("target", "source") if swap else ("source", "target")
    pair = [name for name in columns.split() if features or name != "features"]
    inputs = [name for name in pair if name != ignored]
    if len(cells) not in (len(inputs), len(pair)):
        expected = "<TAB>".join(inputs) if features else "source alone or source<TAB>target"
        raise InputError(f"{where}: {count_of(len(cells), 'column')}, expected {expected}")
    found = dict(zip(pair if len(cells) == len(pair) else inputs, cells, strict=True))
    return Source(found[read], split_features(found.get("features", "")))


def numbered_lines(file: Path) -> tuple[NumberedLines, str]:
    """The lines of a file, or of standard input if it is ``-``, with their numbers; and its name in messages."""
    if file == Path("-"):
        return enumerate(read_standard_input(), 1), STANDARD_INPUT
    return enumerate(read_lines(file), 1), str(file)


def has_features(files: Files) -> bool:
    """Whether the first line with any text has a third column."""
    if isinstance(files, tuple):
        return False
    first_lines = islice(read_lines(files), MAX_BLANK_LINES)
    return next((line.count("\t") == 2 for line in first_lines if line.strip()), False)


def split_features(tag: str) -> tuple[str, ...]:
    """The single features of a tag such as ``N;DAT;PL`` or ``case=dative,number=plural``: their order has no meaning.

    Layered features are taken apart, so that tags share what they have in common: ``NOM(1,SG)`` is ``NOM(1)`` and
    ``NOM(SG)``. Different ones of the same name, as in ``ARG(1,SG);ARG(2,PL)``, stay whole: their parts would be mixed
    up. A feature that is repeated is another one: ``PRF;PRF`` is ``PRF`` and ``PRF*2``.
    """
    features = list(_split_outside_brackets(tag))
    names = Counter(name for name, inside in map(_layer, set(features)) if inside)
    split: list[str] = []
    for feature in features:
        name, inside = _layer(feature)
        parts = split_features(inside) if names[name] == 1 else ()
        split += [f"{name}({part})" for part in parts] or [feature]
    return tuple(_numbered(split))


def _numbered(features: Iterable[str]) -> Iterator[str]:
    """The features; those that are repeated have a number."""
    times: Counter[str] = Counter()
    for feature in features:
        times[feature] += 1
        yield feature if times[feature] == 1 else f"{feature}*{times[feature]}"


def _layer(feature: str) -> tuple[str, str]:
    """The name of a layered feature and what is in its brackets, which is nothing for other features."""
    if len(feature) > _LONGEST_LAYERED or not feature.endswith(")"):
        return feature, ""
    name, _, inside = feature[:-1].partition("(")
    return name, inside


def _split_outside_brackets(tag: str) -> Iterator[str]:
    """The parts between separators that are outside brackets."""
    depth, part = 0, ""
    for piece in _PIECES.findall(tag):
        depth = max(0, depth + (piece == "(") - (piece == ")"))
        if depth or not _SEPARATORS.match(piece):
            part += piece
        elif part:
            yield part
            part = ""
    if part:
        yield part


def _features_expected(columns: ColumnOrder) -> str:
    return f"but the model has some, expected {columns.replace(' ', '<TAB>')}"


def _cells(cells: Sequence[str], columns: ColumnOrder) -> tuple[str, str, str]:
    """Source, target and tag among the cells of a line with two or three columns."""
    if len(cells) == 2:
        return cells[0], cells[1], ""
    order = columns.split()
    return cells[order.index("source")], cells[order.index("target")], cells[order.index("features")]


def _read_tsv(path: Path, features: bool | None, columns: ColumnOrder) -> Iterator[Pair]:
    width = 0
    lines, name = numbered_lines(path)
    for line_number, line in lines:
        where = f"{name}:{line_number}"
        if not line.strip():
            yield Pair("", "", (), where)
            continue
        cells = line.split("\t")
        width = width or len(cells)
        if len(cells) not in (2, 3):
            hint = "; if it is CSV, save it as tab-separated text" if len(cells) == 1 and "," in line else ""
            found = count_of(len(cells), "column")
            raise InputError(f"{where}: {found}, expected source<TAB>target[<TAB>features]{hint}")
        if len(cells) != width:
            raise InputError(f"{where}: {count_of(len(cells), 'column')}, expected {width} as in the lines before it")
        if features and width == 2:
            raise InputError(f"{where}: no features, {_features_expected(columns)}")
        source, target, tag = _cells(cells, columns)
        yield Pair(source, target, () if features is False else split_features(tag), where)


def _read_targets(path: Path, features: bool, swap: bool, columns: ColumnOrder) -> Iterator[Pair]:
    lines, name = numbered_lines(path)
    for line_number, line in lines:
        cells = line.split("\t")
        where = f"{name}:{line_number}"
        if len(cells) > 3:
            raise InputError(f"{where}: {count_of(len(cells), 'column')}, expected text or source<TAB>target")
        source, target, tag = _cells(cells, columns) if len(cells) > 1 else (line, line, "")
        yield Pair("", source if swap else target, split_features(tag) if features else (), where)


def _read_parallel(source_path: Path, target_path: Path) -> Iterator[Pair]:
    targets = read_lines(target_path)
    line_number = 0
    for line_number, source in enumerate(read_lines(source_path), 1):
        target = next(targets, None)
        if target is None:
            raise InputError(
                f"{target_path}: {count_of(line_number - 1, 'line')}, expected as many as in {source_path}"
            )
        yield Pair(source, target, (), f"{source_path}:{line_number}")
    if next(targets, None) is not None:
        raise InputError(
            f"{target_path}: more than {count_of(line_number, 'line')}, expected as many as in {source_path}"
        )
