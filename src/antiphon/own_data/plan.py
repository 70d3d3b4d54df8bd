"""What a table of pairs is and how to learn it: columns, tokens of each side, held-out pairs, and a recipe."""

import hashlib
import os
import re
import stat
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Literal, NamedTuple

from antiphon.exceptions import InputError
from antiphon.own_data.table_file import FEATURE_NAMES, SEPARATORS, SOURCE_NAMES, TARGET_NAMES, Table, read_table
from antiphon.storage.files import make_folders, remove_empty, scratch_name, write_atomically
from antiphon.terminal import count_of, one_line

Split = Literal["letters", "symbols", "words"]
"""How the texts of a side are split: letters; symbols between spaces, of which there are few; words of sentences."""
_MOST_SYMBOLS = 200
_USES_OF_A_SYMBOL = 10
"""A closed set of symbols: not many, and each is used often on average."""
_WORDS_OF_A_SENTENCE = 4
_TAG = re.compile(r"[A-Z0-9]+([-+.][A-Z0-9]+)*(\([^()]*\))?|[\w.]+=[\w.,+-]+")
"""A feature such as ``PL``, ``V.PTCP``, ``ARG(1,SG)`` or ``case=dat``."""
_MOST_DIGITS = 16
"""Longer numbers do not count rows."""
_FEW_TAGS = 10
"""Rows for each different tag, at least, where tags do not look like tags."""
_DEV_SHARE, _LEAST_DEV, _MOST_DEV = 10, 20, 1000
"""One source in this many is held out; at least and at most."""
_LEAST_PAIRS = 60
_EIGHT_BITS = {"cp1252": "Windows-1252", "latin-1": "Latin-1"}
_LONGEST = 1000
"""Letters of the longest text that is learnt: memory grows with the product of both lengths."""
_ORDERED_PAIRS = 300
"""Pairs in which the order of common tokens is looked at."""
_IN_COMMON = 0.7
"""Of shorter texts' tokens, the share in common from which on a pair says something about order."""
_REORDERED = 0.8
"""Pairs whose longest common subsequence has less than this share of the common tokens are reordered."""
_MUCH, _MOST = 0.05, 0.5
"""Shares of pairs that are worth a line, and that decide."""


class Decision(NamedTuple):
    """One line of what was found: what it is about, what was found or decided and why, and how to decide otherwise."""

    about: str
    found: str
    override: str = ""


Row = tuple[str, str, str]
"""Source, target and tag, which is empty without features."""


@dataclass(frozen=True)
class Plan:
    """How to learn a table: a recipe with settings, the pairs to learn from, and those that are held out."""

    recipe: str
    settings: dict[str, str]
    parts: dict[str, list[Row]]
    """Pairs by what they are for: train, dev and test."""
    has_features: bool
    decisions: list[Decision]

    def table(self) -> list[str]:
        """A line for each decision: what was found, and how to decide otherwise."""
        width = max(len(each.about) for each in self.decisions)
        return [
            f"{about:{width}}  {found}{f'  [{override}]' if override else ''}"
            for about, found, override in self.decisions
        ]

    def settings_in(self, folder: Path) -> dict[str, str]:
        """All settings of the plan, with the files of its pairs in a folder."""
        return self.settings | {f"data.{path.stem}": str(path) for path in self._texts(folder)}

    @contextmanager
    def written(self, folder: Path, *, replace: bool = False, is_used: Callable[[], bool]) -> Iterator[None]:
        """Inside, the pairs are in a folder, where other files of their names are an error unless replaced.

        If what is inside fails and they are not used, the folder is as it was.
        """
        replaced: list[Path] = []
        with ExitStack() as undo:
            undo.callback(remove_empty, make_folders(folder))
            for path, text in self._texts(folder).items():
                if _is_file_of(path, text):
                    continue
                if not os.path.lexists(path):
                    undo.callback(path.unlink, missing_ok=True)
                elif replace and path.is_file():
                    replaced.append(path.with_name(scratch_name()))
                    path.rename(replaced[-1])
                    undo.callback(replaced[-1].replace, path)
                else:
                    raise InputError(f"{path}: other pairs than those of today, expected none or the same; try --out")
                write_atomically(path, text)
            succeeded = False
            try:
                yield
                succeeded = True
            finally:
                if succeeded or is_used():
                    undo.pop_all()
                    for path in replaced:
                        path.unlink()

    def _texts(self, folder: Path) -> dict[Path, str]:
        """The texts of the files of pairs."""
        parts = {folder / f"{name}.tsv": rows for name, rows in self.parts.items()}
        return {path: "".join(f"{line}\n" for line in self._lines(rows)) for path, rows in parts.items()}

    def _lines(self, rows: Sequence[Row]) -> Iterator[str]:
        for row in rows:
            yield "\t".join(row if self.has_features else row[:2])


def _is_file_of(path: Path, text: str) -> bool:
    """Whether a path is a regular file of this text."""
    try:
        found, content = path.lstat(), text.encode()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == len(content) and path.read_bytes() == content


def plan_of_files(data: Path, settings: Mapping[str, object]) -> Plan:
    """The plan for a file of pairs, and for further ones of any usual form that ``data.dev`` and ``data.test`` name."""
    named = {name: Path(str(settings[f"data.{name}"])) for name in ("dev", "test") if f"data.{name}" in settings}
    return make_plan(
        read_table(data), settings, {name: read_table(path) for name, path in named.items() if path.is_file()}
    )


def make_plan(table: Table, given: Collection[str] = (), more: Mapping[str, Table] | None = None) -> Plan:
    """The plan for a table; ``given`` are the keys of settings that the user has decided, ``more`` further tables."""
    rows, columns = _rows(table)
    filled = [row for row in rows if row[0] and row[1]]
    distinct = [row for row in dict.fromkeys(filled) if max(map(len, row)) <= _LONGEST]
    if len(distinct) < _LEAST_PAIRS:
        short = f" of at most {_LONGEST:,} letters" if len(distinct) < len(set(filled)) else ""
        raise InputError(
            f"{table.path}: {count_of(len(distinct), 'pair')}{short}, expected {_LEAST_PAIRS} or more to learn from"
        )
    if len({row[1] for row in distinct}) == 1:
        raise InputError(f"{table.path}: all targets are {one_line(distinct[0][1], 30)!r}, expected different ones")
    splits = how_split([row[0] for row in distinct]), how_split([row[1] for row in distinct])
    recipe, settings, why = _recipe(*splits, has_features=columns[2] is not None)
    reordered = _reordered_share(distinct, splits)
    if reordered > _MOST and "model.kind" not in given and recipe == "letters":
        settings["model.kind"] = "attention"
        why = "the whole source is read first, and every token may come from anywhere in it"
    further = {name: [row for row in _rows(each)[0] if row[0] and row[1]] for name, each in (more or {}).items()}
    train, held = (distinct, []) if "data.dev" in given else hold_out(distinct)
    parts = {"train": train} | ({"dev": held} if held else {}) | further
    if mixed := _mixed_normalisation(row for part in parts.values() for row in part):
        settings["data.nfc"] = "true"
    decisions = [
        Decision("file", _file(table)),
        Decision("source", _side(columns[0], splits[0], distinct, 0), _other_split("source", splits[0])),
        Decision("target", _side(columns[1], splits[1], distinct, 1), _other_split("target", splits[1])),
        *_direction(splits),
        *(
            []
            if columns[2] is None
            else [Decision("features", _features(table, columns[2]), "--set data.features=false")]
        ),
        *([Decision("NFC", mixed, "--set data.nfc=false")] if mixed else []),
        *_doubtful(rows, filled, distinct),
        *_order(reordered, settings),
        *([Decision("held out", _held_out(held), "--set data.dev=FILE")] if held else []),
        *(each for name, part in further.items() for each in _overlap(name, part, train)),
        Decision("recipe", f"{recipe}: {why}", "antiphon recipes"),
    ]
    kept = {key: value for key, value in settings.items() if key not in given}
    return Plan(recipe, kept, parts, columns[2] is not None, decisions)


def _rows(table: Table) -> tuple[list[Row], tuple[int, int, int | None]]:
    """Source, target and tag of every row, and the columns that they stand in."""
    source, target, tags = columns = find_columns(table)
    return [(row[source], row[target], "" if tags is None else row[tags]) for row in table.rows], columns


def find_columns(table: Table) -> tuple[int, int, int | None]:
    """The columns of source, target and features: by their names if there are any, else by what is in them."""
    if named := _named_columns(table):
        return named
    if table.width == 2:
        return 0, 1, None
    columns = list(range(table.width))
    tags = _tag_columns(table, columns)
    if len(tags) != 1:
        columns = [index for index in columns if not _counts_rows(table.column(index))]
        tags = _tag_columns(table, columns)
    if len(columns) == 2:
        return columns[0], columns[1], None
    if len(tags) != 1:
        shown = " | ".join(one_line(cell, 30) for cell in table.rows[0])
        raise InputError(
            f"{table.path}:{table.lines[0]}: {count_of(table.width, 'column')} ({shown}), expected source and target, "
            "with one column of features such as N;PL at most, or a first line that names source, target, features"
        )
    source, target = (index for index in columns if index != tags[0])
    return source, target, tags[0]


def _tag_columns(table: Table, columns: Sequence[int]) -> list[int]:
    """Those of three columns that hold tags."""
    return [index for index in columns if len(columns) == 3 and _holds_tags(table.column(index))]


def _counts_rows(cells: Sequence[str]) -> bool:
    """Whether cells are numbers of rows, each one more than the number before."""
    first = int(cells[0]) if cells[0].isdecimal() and len(cells[0]) < _MOST_DIGITS else -1
    return first >= 0 and all(cell == str(first + index) for index, cell in enumerate(cells))


def _named_columns(table: Table) -> tuple[int, int, int | None] | None:
    """The columns that the first line names; nothing unless it names one source and one target."""
    names = [name.lower() for name in table.header]
    found = [[index for index, name in enumerate(names) if name in known] for known in (SOURCE_NAMES, TARGET_NAMES)]
    if any(len(columns) != 1 for columns in found):
        return None
    features = [index for index, name in enumerate(names) if name in FEATURE_NAMES]
    return found[0][0], found[1][0], features[0] if features else None


def _holds_tags(cells: Sequence[str]) -> bool:
    """Whether cells are tags: most look like some, or the same few come again and again."""
    distinct = set(cells)
    if not any(distinct) or all(cell.isdigit() for cell in distinct):
        return False
    look = sum(all(_TAG.fullmatch(part) for part in re.split(r"[;,|\s]+", cell) if part) for cell in distinct)
    return look > 0.9 * len(distinct) or 1 < len(distinct) <= len(cells) / _FEW_TAGS


def how_split(texts: Sequence[str]) -> Split:
    """How to split the texts of a side."""
    spaced = sum(" " in text for text in texts)
    if 2 * spaced <= len(texts):
        return "letters"
    uses = Counter(token for text in texts for token in text.split())
    if len(uses) <= _MOST_SYMBOLS and uses.total() >= _USES_OF_A_SYMBOL * len(uses):
        return "symbols"
    return "words" if uses.total() >= _WORDS_OF_A_SENTENCE * len(texts) else "letters"


def hold_out(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Pairs to learn from, and pairs held out: sources are chosen by their hash, each with all of its pairs."""
    sources = sorted({row[0] for row in rows}, key=lambda source: hashlib.sha256(source.encode()).digest())
    count = min(_MOST_DEV, max(_LEAST_DEV, len(sources) // _DEV_SHARE), len(sources) // 3)
    held = frozenset(sources[:count])
    if not held:
        raise InputError(f"{count_of(len(sources), 'different source')}, expected {_LEAST_PAIRS} or more to learn from")
    return [row for row in rows if row[0] not in held], [row for row in rows if row[0] in held]


def _recipe(source: Split, target: Split, has_features: bool) -> tuple[str, dict[str, str], str]:
    """A recipe for both splits, settings on top, and why."""
    tokens = {"letters": "chars", "symbols": "words", "words": "words"}
    settings = {"data.source_tokens": tokens[source], "data.target_tokens": tokens[target]}
    if source == target == "words":
        return "words", settings, "sentences to sentences"
    if has_features:
        return "inflection", settings, "the features say how a source changes"
    if target == "symbols" and source == "letters":
        return "g2p", settings, "letters are read and symbols written"
    return "letters", settings, "a source is read from left to right, and every token of it may write some"


def _file(table: Table) -> str:
    names = f", columns {', '.join(one_line(name, 20) for name in table.header)}" if table.header else ""
    encoding = "UTF-16" if table.encoding.startswith("utf-16") else "UTF-8"
    if table.encoding in _EIGHT_BITS:
        encoding = f"not UTF-8, read as {_EIGHT_BITS[table.encoding]}: look whether letters are right"
    return f"{count_of(len(table.rows), 'row')}, {SEPARATORS[table.separator]} between columns{names}; {encoding}"


def _side(column: int, split: Split, rows: Sequence[Row], index: int) -> str:
    texts = [row[index] for row in rows]
    tokens = Counter(token for text in texts for token in (text if split == "letters" else text.split()))
    kinds = {"letters": "letters", "symbols": "symbols between spaces", "words": "words"}
    return (
        f"column {column + 1}, {kinds[split]}: {len(tokens):,} different, {tokens.total() / len(texts):.1f} in a text; "
        f"such as {one_line(texts[0], 40)}"
    )


def _other_split(side: str, split: Split) -> str:
    return f"--set data.{side}_tokens={'words' if split == 'letters' else 'chars'}"


def _features(table: Table, column: int) -> str:
    cells = table.column(column)
    return f"column {column + 1}, {len(set(cells)):,} different; such as {one_line(cells[0], 40)}"


def _doubtful(rows: Sequence[Row], filled: Sequence[Row], distinct: Sequence[Row]) -> Iterator[Decision]:
    """What a user should know about single rows, if there is anything."""
    long = [row for row in set(filled) if max(map(len, row)) > _LONGEST]
    if long:
        yield Decision("left out", f"{count_of(len(long), 'row')} with a text of more than {_LONGEST:,} letters")
    if len(rows) > len(filled):
        yield Decision("left out", f"{count_of(len(rows) - len(filled), 'row')} without a source or a target")
    if repeated := len(filled) - len(distinct) - len(long):
        yield Decision("left out", f"{count_of(repeated, 'row')} that repeat another")
    targets: dict[tuple[str, str], list[str]] = defaultdict(list)
    for source, target, tag in distinct:
        targets[source, tag].append(target)
    several = {key: found for key, found in targets.items() if len(found) > 1}
    if several:
        (source, _), found = next(iter(several.items()))
        shown = " and ".join(one_line(target, 30) for target in found[:2])
        what = count_of(len(several), "source")
        yield Decision("ambiguous", f"{what} with several targets, all kept; such as {one_line(source, 30)}: {shown}")
    same = sum(source == target for source, target, _ in distinct)
    if same > (1 - _MUCH) * len(distinct):
        yield Decision("unchanged", f"{same:,} of {len(distinct):,} targets equal their sources; is the column right?")


def _direction(splits: tuple[Split, Split]) -> Iterator[Decision]:
    """A question where symbols are read and letters written, as where columns are exchanged."""
    if splits == ("symbols", "letters"):
        yield Decision(
            "direction", "symbols are read and letters written; the other way round:", "--set data.swap=true"
        )


def _mixed_normalisation(rows: Iterator[Row]) -> str:
    """Says if the same character is one code point here and several there."""
    texts = {text for row in rows for text in row[:2] if not text.isascii()}
    decomposed = {text for text in texts if not unicodedata.is_normalized("NFC", text)}
    if not decomposed or len(decomposed) == len(texts):
        return ""
    return f"{count_of(len(decomposed), 'text')} with letters in parts (NFD), composed as they are in the others"


def _reordered_share(rows: Sequence[Row], splits: tuple[Split, Split]) -> float:
    """The share of pairs that have tokens in common in another order; 0 if that cannot be told."""
    if splits[0] != splits[1]:
        return 0.0
    some, found = rows[:: max(1, len(rows) // _ORDERED_PAIRS)], 0
    for source, target, _ in some:
        both = (list(source), list(target)) if splits[0] == "letters" else (source.split(), target.split())
        common = (Counter(both[0]) & Counter(both[1])).total()
        if common >= _IN_COMMON * min(map(len, both)):
            in_order = sum(block.size for block in SequenceMatcher(None, *both, autojunk=False).get_matching_blocks())
            found += in_order < _REORDERED * common
    return found / len(some)


def _order(share: float, settings: Mapping[str, str]) -> Iterator[Decision]:
    """How many pairs change the order of tokens that both sides have, and which kind of model that decides."""
    found = f"{share:.0%} of pairs have tokens in common in another order"
    if "model.kind" in settings:
        yield Decision("order", f"{found}: attention learns that with fewest pairs", "--set model.kind=transducer")
    elif share > _MUCH:
        yield Decision("order", f"{found}, which takes more pairs to learn", "--set model.kind=attention")


def _overlap(name: str, part: Sequence[Row], train: Sequence[Row]) -> Iterator[Decision]:
    """What a further file has, and how much of it is learnt as well."""
    yield Decision(name, count_of(len(part), "pair"))
    known, sources = set(train), {row[0] for row in train}
    again, shared = sum(row in known for row in part), sum(row[0] in sources for row in part)
    if again > _MUCH * len(part):
        yield Decision(
            name, f"{again:,} of these pairs are learnt too, so {name} does not tell how good new outputs are"
        )
    elif shared > _MUCH * len(part) and not any(row[2] for row in part):
        yield Decision(name, f"{shared:,} of these have a source that is learnt too, with another target")


def _held_out(dev: Sequence[Row]) -> str:
    sources = len({row[0] for row in dev})
    return f"{count_of(len(dev), 'pair')} of {count_of(sources, 'source')} select the best epoch; a hash chooses them"
