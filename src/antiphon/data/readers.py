"""Reads text files as pairs and sources."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from antiphon.data.files import STANDARD_INPUT, read_lines, read_standard_input
from antiphon.exceptions import InputError
from antiphon.terminal import count_of

Files = Path | tuple[Path, Path]
"""One TSV file of pairs, or two parallel text files."""
NumberedLines = Iterable[tuple[int, str]]
"""Lines of text with their numbers in a file."""
_FEATURES_EXPECTED = "but the model has some, expected source<TAB>target<TAB>features"


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


def read_pairs(files: Files, *, features: bool | None = None, swap: bool = False) -> Iterator[Pair]:
    """Every pair of a TSV ``source<TAB>target[<TAB>features]``, or of two parallel files, blank ones included.

    The third column is required if ``features`` is true and ignored if it is false. ``swap`` exchanges source and
    target.
    """
    if features and isinstance(files, tuple):
        raise InputError(f"{files[0]}: no features in parallel files, {_FEATURES_EXPECTED}")
    pairs = _read_parallel(*files) if isinstance(files, tuple) else _read_tsv(files, features)
    for pair in pairs:
        yield pair._replace(source=pair.target, target=pair.source) if swap else pair


def read_targets(files: Files, *, features: bool = False, swap: bool = False) -> Iterator[Pair]:
    """The targets of a file of pairs, or the lines of a text file, as pairs without a source."""
    if isinstance(files, tuple):
        yield from (pair._replace(source="", features=()) for pair in read_pairs(files, swap=swap))
        return
    for line_number, line in enumerate(read_lines(files), 1):
        columns = line.split("\t")
        where = f"{files}:{line_number}"
        if len(columns) > 3:
            raise InputError(f"{where}: {count_of(len(columns), 'column')}, expected text or source<TAB>target")
        tag = split_features(columns[2]) if features and len(columns) == 3 else ()
        yield Pair("", columns[0] if swap or len(columns) == 1 else columns[1], tag, where)


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
        raise InputError(f"{name}: no pairs, expected lines of source<TAB>target")
    return filled


def pair_files(paths: Sequence[Path]) -> Files:
    """One TSV or two parallel files, from the paths that name them."""
    if len(paths) == 1:
        return paths[0]
    if len(paths) == 2:
        return paths[0], paths[1]
    raise InputError(f"{paths[2]}: a third file, expected one TSV of pairs or two parallel text files")


def parse_source(line: str, where: str, *, features: bool = False, swap: bool = False) -> Source:
    """The input on a line to predict from.

    With features a line is ``source<TAB>features`` or a full ``source<TAB>target<TAB>features``; without, it is
    ``source`` or ``source<TAB>target``. The target is ignored; with ``swap`` the source of a full pair is
    ignored. A blank line is an empty input.
    """
    if not line.strip():
        return Source("")
    columns = line.split("\t")
    *texts, tag = columns if features else [*columns, ""]
    if len(texts) not in (1, 2):
        expected = "source<TAB>features" if features else "source alone or source<TAB>target"
        raise InputError(f"{where}: {count_of(len(columns), 'column')}, expected {expected}")
    return Source(texts[-1] if swap else texts[0], split_features(tag))


def numbered_lines(file: Path) -> tuple[NumberedLines, str]:
    """The lines of a file, or of standard input if it is ``-``, with their numbers; and its name in messages."""
    if file == Path("-"):
        return enumerate(read_standard_input(), 1), STANDARD_INPUT
    return enumerate(read_lines(file), 1), str(file)


def has_features(files: Files) -> bool:
    """Whether the first line with any text has a third column."""
    if isinstance(files, tuple):
        return False
    return next((line.count("\t") == 2 for line in read_lines(files) if line.strip()), False)


def split_features(column: str) -> tuple[str, ...]:
    """The single features of a tag such as ``N;DAT;PL`` or ``case=dative,number=plural``."""
    return tuple(feature for feature in re.split(r"[;,|\s]+", column) if feature)


def _read_tsv(path: Path, features: bool | None) -> Iterator[Pair]:
    width = 0
    for line_number, line in enumerate(read_lines(path), 1):
        where = f"{path}:{line_number}"
        if not line.strip():
            yield Pair("", "", (), where)
            continue
        columns = line.split("\t")
        width = width or len(columns)
        if len(columns) not in (2, 3):
            raise InputError(f"{where}: {count_of(len(columns), 'column')}, expected source<TAB>target[<TAB>features]")
        if len(columns) != width:
            raise InputError(f"{where}: {count_of(len(columns), 'column')}, expected {width} as in the lines before it")
        if features and width == 2:
            raise InputError(f"{where}: no features, {_FEATURES_EXPECTED}")
        tag = split_features(columns[2]) if features is not False and width == 3 else ()
        yield Pair(columns[0], columns[1], tag, where)


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
