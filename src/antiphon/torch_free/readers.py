"""Reads text files as pairs and sources."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

from antiphon.exceptions import InputError
from antiphon.terminal import count_of
from antiphon.torch_free.files import STANDARD_INPUT, read_lines, read_standard_input

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
"""Blank lines of a file, if it has fewer pairs."""
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
    for pair in _refuse_blank(pairs):
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
    return _refuse_blank(_read_targets(files, features, swap, columns))


def _refuse_blank(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """The pairs; more than a million blank lines among fewer pairs are refused: a small gzip file may have billions."""
    blank = filled = 0
    for pair in pairs:
        if pair.source or pair.target:
            filled += 1
        else:
            blank += 1
            if blank > max(MAX_BLANK_LINES, filled):
                raise InputError(f"{pair.where}: {blank:,} blank lines, expected fewer than lines with pairs")
        yield pair


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
