"""The rows of a text file, whatever its encoding, its separator and its first line are."""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Literal

from antiphon.exceptions import InputError
from antiphon.terminal import count_of, one_line
from antiphon.torch_free.readers import MAX_LINE_BYTES, named_errors, open_file

SEPARATORS = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "bar", " ": "first space"}
_MOST_BYTES, _MOST_LINES = 2**28, 2**23
"""Limits of a file that is looked at: a small gzip file may hold more than memory does."""
_SAMPLE = 1000
"""Lines that decide about the separator."""
_PADDED = 0.2
"""From this share of bytes of 0 at even or at odd places on, a text is UTF-16 without a mark."""
_VARIANT = re.compile(r"\(\d+\)$")
"""What counts the readings of a word in lexica such as CMUdict."""
_MOST_LEXICON_SYMBOLS = 200
_NAME = re.compile(r"[^\W\d_]{3,}([ _][^\W\d_]{3,})?")
_FEW_NAMES = 0.02
"""In a column whose first cell is its name, at most this share of the others looks like one."""
_BYTE_ORDER_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}
_OTHER_FORMATS = {
    b"PK\x03\x04": "a zip file or a spreadsheet",
    b"PAR1": "Parquet",
    b"\x1f\x8b": "gzipped",
    b"%PDF": "PDF",
}
SOURCE_NAMES = frozenset(
    "source src input from x word grapheme graphemes spelling orthography lemma text sentence".split()
)
TARGET_NAMES = frozenset(
    "target tgt trg output to y label pronunciation phoneme phonemes ipa form inflected translation summary".split()
)
FEATURE_NAMES = frozenset("features feature feats tag tags msd morphology".split())
_LANGUAGES = frozenset(
    (
        "arabic chinese czech danish dutch english finnish french german greek hebrew hindi hungarian italian japanese "
        "korean latin norwegian polish portuguese romanian russian spanish swedish turkish ukrainian"
    ).split()
)
"""Names of columns that do not tell which is the source."""


@dataclass(frozen=True)
class Table:
    """Rows of cells, with the line of each in the file."""

    path: Path
    rows: list[tuple[str, ...]]
    lines: list[int]
    encoding: str
    separator: str
    header: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.rows[0])

    def column(self, index: int) -> list[str]:
        """The cells of a column."""
        return [row[index] for row in self.rows]


def read_table(path: Path) -> Table:
    """The rows of a file that have text, all of the same width."""
    content = _read_bytes(path)
    encoding = _encoding_of(content, path)
    sample = [line for _, line in islice(_filled_lines(content, encoding, path), _SAMPLE)]
    if not sample:
        raise InputError(f"{path}: no text, expected lines of source and target")
    separator = _separator(sample, path)
    found = list(_rows(content, encoding, separator, path))
    width = Counter(len(cells) for _, cells in found).most_common(1)[0][0]
    for number, cells in found:
        if len(cells) != width:
            raise InputError(
                f"{path}:{number}: {count_of(len(cells), 'column')} between {SEPARATORS[separator]}s, expected {width} "
                "as in most lines"
            )
    lines, rows = [number for number, _ in found], _without_empty_columns([cells for _, cells in found])
    header = rows[0] if _is_header(rows) else ()
    start = 1 if header else 0
    if not rows[start:]:
        raise InputError(f"{path}: nothing but a first line of names, expected lines of source and target")
    return Table(path, rows[start:], lines[start:], encoding, separator, header)


def _without_empty_columns(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The rows without columns that have no text, such as those of separators at the ends of lines."""
    kept = [index for index in range(len(rows[0])) if any(row[index] for row in rows)]
    return [tuple(row[index] for index in kept) for row in rows]


def _read_bytes(path: Path) -> bytes:
    with named_errors(path), open_file(path) as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise InputError(
            f"{path}: more than {_MOST_BYTES:,} bytes, expected a smaller file, or --set data.train={path}"
        )
    for start, name in _OTHER_FORMATS.items():
        if content.startswith(start):
            raise InputError(
                f"{path}: seems to be {name}, expected text with a tab, comma or semicolon between columns"
            )
    return content


def _encoding_of(content: bytes, path: Path) -> str:
    """The name of the encoding; what is no UTF-8 is that of Windows, or Latin-1, where every byte is a letter."""
    marked = next((name for mark, name in _BYTE_ORDER_MARKS.items() if content.startswith(mark)), _unmarked(content))
    for encoding in (marked, "cp1252", "latin-1"):
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError as error:
            if encoding.startswith("utf-16"):
                raise InputError(
                    f"{path}: byte {error.start + 1} is not UTF-16, expected UTF-8 or UTF-16 text"
                ) from None
        else:
            break
    if "\0" in text:
        raise InputError(f"{path}: has bytes of 0, expected text")
    _refuse_json(text, path)
    return encoding


def _unmarked(content: bytes) -> str:
    """The encoding of a text without a mark: in UTF-16 every other byte of a separator is 0."""
    sample = b"" if len(content) % 2 else content[: 2 * _SAMPLE]
    for start, name in ((1, "utf-16-le"), (0, "utf-16-be")):
        if sample[start::2].count(0) > _PADDED * len(sample) / 2 and not sample[1 - start :: 2].count(0):
            return name
    return "utf-8"


def _refuse_json(text: str, path: Path) -> None:
    """Refuses objects and lists, whose commas would pass for separators."""
    first = text.lstrip().partition("\n")[0].rstrip().removesuffix(",")
    try:
        is_json = first in ("[", "{") or isinstance(json.loads(first), dict | list)
    except (ValueError, RecursionError):
        return
    if is_json:
        raise InputError(f"{path}: seems to be JSON, expected text with a tab, comma or semicolon between columns")


def _filled_lines(content: bytes, encoding: str, path: Path) -> Iterator[tuple[int, str]]:
    """The lines that have text, with their numbers; only line ends that files have, not those that Unicode knows."""
    for number, line in enumerate(TextIOWrapper(BytesIO(content), encoding), 1):
        _refuse_many_lines(number, path)
        if len(line) > MAX_LINE_BYTES:
            raise InputError(
                f"{path}:{number}: a line of more than {MAX_LINE_BYTES:,} characters, expected shorter lines"
            )
        if line.strip():
            yield number, line.rstrip("\n")


def _refuse_many_lines(number: int, path: Path) -> None:
    if number > _MOST_LINES:
        raise InputError(
            f"{path}: more than {_MOST_LINES:,} lines, blank ones too, expected fewer, or --set data.train={path}"
        )


def _separator(sample: Sequence[str], path: Path) -> str:
    """The separator that splits the lines into the same number of columns, two or more, most consistently.

    Texts have commas too: a tab that is in nearly every line comes first.
    """
    shares = {separator: _consistent(sample, separator) for separator in SEPARATORS if separator != " "}
    best = max(shares, key=lambda separator: (shares[separator] > 0.9, shares[separator]))
    if shares["\t"] > 0.9:
        best = "\t"
    if shares[best] <= 0.5 and _is_lexicon(sample):
        return " "
    if shares[best] <= 0.5:
        shown = one_line(sample[0], 60)
        raise InputError(
            f"{path}: one column ({shown!r}), expected source and target with a tab, comma or semicolon between them"
        )
    return best


def _consistent(sample: Sequence[str], separator: str) -> float:
    """The share of rows that have the most frequent number of columns, if that is more than one."""
    widths: Counter[int] = Counter()
    with suppress(csv.Error):  # of a cell that is too long, whose line is named later
        for cells in csv.reader(sample, delimiter=separator, quoting=_quoting(separator)):
            widths[len(cells)] += 1
    width, count = max(widths.items(), key=lambda each: each[1], default=(0, 0))
    return count / widths.total() if width > 1 else 0.0


def _is_lexicon(sample: Sequence[str]) -> bool:
    """Whether lines are words and few symbols after them, as in the lexica of CMUdict and of Kaldi."""
    entries = [line.split() for line in sample if not line.startswith(";;;")]
    symbols = Counter(symbol for _, *rest in entries for symbol in rest)
    return (
        all(len(entry) > 1 for entry in entries)
        and len(symbols) <= min(_MOST_LEXICON_SYMBOLS, symbols.total() / 3)
        and len({entry[0] for entry in entries}) > len(entries) / 2
    )


def _quoting(separator: str) -> Literal[0, 3]:
    """Quotation marks are text between tabs; they hold cells together between commas."""
    return csv.QUOTE_NONE if separator == "\t" else csv.QUOTE_MINIMAL


def _rows(content: bytes, encoding: str, separator: str, path: Path) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The cells of each row with the number of its line; white space of any kind is one space."""
    if separator in "\t ":
        for number, line in _filled_lines(content, encoding, path):
            if separator == "\t":
                yield number, _cells(line.split("\t"))
            elif not line.startswith(";;;"):
                word, *rest = line.split()
                yield number, (_VARIANT.sub("", word), " ".join(rest))
        return
    reader = csv.reader(TextIOWrapper(BytesIO(content), encoding, newline=""), delimiter=separator)
    started = 1
    try:
        for cells in reader:
            _refuse_many_lines(reader.line_num, path)
            if any(cell.strip() for cell in cells):
                yield started, _cells(cells)
            started = reader.line_num + 1
    except csv.Error:
        raise InputError(
            f"{path}:{started}: a cell of more than {csv.field_size_limit():,} characters, expected shorter ones; a "
            "quotation mark may never be closed"
        ) from None


def _cells(cells: Sequence[str]) -> tuple[str, ...]:
    return tuple(" ".join(cell.split()) for cell in cells)


def _is_header(rows: Sequence[tuple[str, ...]]) -> bool:
    """Whether the first cells are names of columns: words that name one, or unlike all others of their column."""
    first, *others = rows
    known = SOURCE_NAMES | TARGET_NAMES | FEATURE_NAMES | _LANGUAGES
    named = sum(cell.lower() in known for cell in first)
    if named >= 2 or named == len(first) or _names_numbers(first, others):
        return True
    if len(others) < 1 / _FEW_NAMES or not all(_NAME.fullmatch(cell) for cell in first):
        return False
    like = [sum(bool(_NAME.fullmatch(row[index])) for row in others) for index in range(len(first))]
    return min(like) <= _FEW_NAMES * len(others)


def _names_numbers(first: Sequence[str], others: Sequence[Sequence[str]]) -> bool:
    """Whether a first cell with letters stands above nothing but numbers."""
    return len(others) > 1 and any(
        any(map(str.isalpha, cell)) and all(row[index].isdecimal() for row in others)
        for index, cell in enumerate(first)
    )
