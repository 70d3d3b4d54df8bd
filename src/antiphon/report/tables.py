"""Reports as text, TSV and JSON lines, well-formed for any text; and tables of metrics and facts."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from io import StringIO
from typing import TYPE_CHECKING, Any, Literal, cast

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from antiphon.console import WIDTH_OF_FILES, PlainConsole
from antiphon.metrics.output_metrics import RANKING_METRICS
from antiphon.terminal import count_of, one_line

if TYPE_CHECKING:
    from antiphon.torch_free.results import Evaluation

_NUMBER = re.compile(r"(-?[\d.]+(e[-+]?\d+)?)?")
_TSV_ESCAPES = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r"})
_HUGE = 1e7
_DECIMALS = {"perplexity": 3, "edit_distance": 3, "AP": 3} | dict.fromkeys(RANKING_METRICS, 4)
_UNLIMITED = 100_000
"""A width that no table has."""

Cell = str | int | float | None


@dataclass(frozen=True)
class Section:
    """A table with its title; ``note`` is printed below it.

    ``optional`` columns are left out, in this order, where the table is too wide for a terminal.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    optional: Sequence[str] = ()

    def without(self, name: str) -> "Section":
        """The section without a column."""
        kept = [column for column, each in enumerate(self.header) if each != name]
        rows = [[row[column] for column in kept] for row in self.rows]
        return replace(self, header=[self.header[column] for column in kept], rows=rows)


def as_text(lines: Sequence[str], sections: Iterable[Section], width: int | None = None) -> str:
    """The lines, then every section as a table for a terminal of a width; without one, with all columns."""
    console = PlainConsole()
    console.file, console.width = StringIO(), width or WIDTH_OF_FILES
    for line in lines:
        console.print(line, soft_wrap=True)
    print_sections(console, sections if width else (replace(section, optional=()) for section in sections))
    return console.file.getvalue()


def print_sections(console: Console, sections: Iterable[Section]) -> None:
    """Prints every section as its title, a table and its note."""
    for section in sections:
        console.print(f"\n{section.title}", soft_wrap=True)
        shown = _fitted(console, section)
        console.print(_text_table(shown))
        for note in filter(None, (section.note, _missing_note(section, shown))):
            console.print(note)


def _fitted(console: Console, section: Section) -> Section:
    """The section without as many of its optional columns as the console has no room for."""
    for name in (each for each in section.optional if each in section.header):
        if (
            Measurement.get(console, console.options.update(width=_UNLIMITED), _text_table(section)).maximum
            <= console.width
        ):
            break
        section = section.without(name)
    return section


def _missing_note(section: Section, shown: Section) -> str:
    missing = [name for name in section.header if name not in shown.header]
    return f"no room for {', '.join(missing)}; --format tsv has all columns" if missing else ""


def as_tsv(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """One table with a header line."""
    return "".join("\t".join(map(escape_tsv, row)) + "\n" for row in (header, *rows))


def as_json_lines(objects: Iterable[dict[str, Any]]) -> str:
    """A line of JSON for each object."""
    return "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in objects)


@dataclass(frozen=True)
class Row:
    """A row of a list in a report."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a JSON-serialisable dictionary."""
        return asdict(self)


@dataclass(frozen=True)
class Listing:
    """Rows of one type, with the attributes that are shown of each; ``left`` counts further rows that are left out.

    ``labels`` say what all of them have in common, where a report has several lists of one type.
    """

    type: str
    title: str
    header: Sequence[str]
    rows: Sequence[Row]
    left: int = 0
    optional: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    def cells(self) -> list[list[Cell]]:
        """The shown attributes of each row."""
        return [[_cell(name, getattr(row, name)) for name in self.header] for row in self.rows]

    def section(self) -> Section:
        """The rows as a table, without empty columns."""
        note = f"... and {self.left:,} more; --most 0 shows all" if self.left else ""
        return _without_empty_columns(Section(self.title, self.header, self.cells(), note, self.optional))


def _cell(name: str, value: Any) -> Cell:
    """Features as they are written in files, other lists with spaces between; of weighted words, the words."""
    if not isinstance(value, tuple):
        return cast(Cell, value)
    return (";" if name == "features" else " ").join(each if isinstance(each, str) else each[0] for each in value)


Format = Literal["text", "tsv", "jsonl"]
"""For a terminal, a spreadsheet or a program."""


@dataclass(frozen=True)
class Report:
    """Lines, tables and lists, of which those with labels replace the others for readers; ``summary`` is for programs.

    TSV holds one table: ``table``, or else the lists.
    """

    summary: dict[str, Any]
    lines: Sequence[str]
    sections: Sequence[Section]
    listings: Sequence[Listing]
    table: Section | None = None

    def write(self, format: Format, width: int | None = None) -> str:
        """The report in a format; ``width`` is that of a terminal."""
        if format == "jsonl":
            return as_json_lines(self._objects())
        listings = [each for each in self.listings if each.labels] or self.listings
        if format == "text":
            return as_text(self.lines, [*self.sections, *(each.section() for each in listings if each.rows)], width)
        if self.table is not None:
            return as_tsv(self.table.header, self.table.rows)
        rows = [[*each.labels.values(), *cells] for each in listings for cells in each.cells()]
        return as_tsv((*listings[0].labels, *listings[0].header), rows)

    def _objects(self) -> Iterator[dict[str, Any]]:
        if self.summary:
            yield {"type": "summary", **self.summary}
        for listing in self.listings:
            for row in listing.rows:
                yield {"type": listing.type, **listing.labels, **row.to_dict()}


def against_line(names: Sequence[str], counts: Mapping[str, int]) -> str:
    """How many items both runs get right, only one of them, or neither."""
    return (
        f"against {names[1]}: both right {counts['both_right']:,}, only {names[0]} {counts['only_this']:,}, "
        f"only {names[1]} {counts['only_other']:,}, neither {counts['neither']:,}"
    )


def _without_empty_columns(section: Section) -> Section:
    """The section without empty columns and with readable column names."""
    kept = [
        column for column in range(len(section.header)) if any(row[column] not in (None, "") for row in section.rows)
    ]
    rows = [[row[column] for column in kept] for row in section.rows]
    header, optional = ([name.replace("_", " ") for name in names] for names in (section.header, section.optional))
    return replace(section, header=[header[column] for column in kept], rows=rows, optional=optional)


def escape_tsv(cell: Cell) -> str:
    """A cell in which tabs and line ends, and nothing else, are written as ``\\t``, ``\\n`` and ``\\r``."""
    return _shown(cell).translate(_TSV_ESCAPES)


def _text_table(section: Section) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False)
    for column, name in enumerate(section.header):
        are_numbers = all(_NUMBER.fullmatch(_shown(row[column])) for row in section.rows)
        justify: Literal["left", "right"] = "right" if are_numbers else "left"
        table.add_column(name, justify=justify, overflow="fold", min_width=max(map(len, name.split()), default=None))
    for row in section.rows:
        table.add_row(*map(_on_one_line, row))
    return table


def _shown(cell: Cell) -> str:
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return "" if cell is None else str(cell)


def _on_one_line(cell: Cell) -> str:
    text = _shown(cell)
    return one_line(text, limit=len(text))


def format_metric(metric: str, value: float) -> str:
    """A value with a suitable number of digits: two, but more if values are small; huge ones have an exponent."""
    if abs(value) >= _HUGE:
        return f"{value:.3g}"
    return f"{value:.{_DECIMALS.get(metric, 2)}f}"


def metrics_table(evaluation: "Evaluation") -> Table:
    """Every metric with its value and signature."""
    unknown = (
        f"{evaluation.unknown_source:,} source and {evaluation.unknown_target:,} target symbols never seen in training"
    )
    table = Table(title=count_of(evaluation.examples, "pair"), caption=unknown)
    table.add_column("metric")
    table.add_column("value", justify="right")
    table.add_column("signature", overflow="fold")
    for name, score in evaluation.metrics.items():
        table.add_row(name, format_metric(name, score.value), score.signature)
    return table


def info_table(title: str, facts: Mapping[str, Any]) -> Table:
    """All facts of a run, nested ones with dotted names."""
    table = Table(title=title, show_header=False)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for name, value in _flatten(facts):
        table.add_row(name, value)
    return table


def _flatten(facts: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            inner = "" if name == "recipe" else f"{prefix}{name}."
            rows += _flatten(value, inner)
        else:
            rows.append((prefix + name, _text(name, value)))
    return rows


def _text(name: str, value: Any) -> str:
    """A fact as text: dev metrics with the digits of the metric, other numbers with four, or none above 1,000."""
    if name == "parameters":
        return f"{value:,}"
    if not isinstance(value, float):
        return str(value)
    if name.startswith("dev_") and name != "dev_metric":
        return format_metric(name.removeprefix("dev_"), value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
