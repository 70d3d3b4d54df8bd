"""Error reports: mistakes, accuracy of groups, frequent edits, differences; as text, TSV and JSON lines."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from antiphon.metrics.breakdown import By, Edit, Group
from antiphon.report.tables import (
    Cell,
    Section,
    as_json_lines,
    as_text,
    as_tsv,
    format_metric,
    left_note,
    without_empty_columns,
)
from antiphon.terminal import count_of


@dataclass(frozen=True)
class ReportedPair:
    """A pair that is listed for some reason; ``where`` is its ``file:line``, empty if it came from no file."""

    where: str
    source: str
    features: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The same as a JSON-serialisable dictionary."""
        return asdict(self)


@dataclass(frozen=True)
class Mistake(ReportedPair):
    """A pair whose output is not its reference.

    ``alignment`` has ``i-j`` pairs of source and output as ``antiphon align`` writes them. Values that a kind of model
    does not have are None, and so is a missing output. ``unseen`` has the symbols of the source and the tokens of the
    reference not seen in training.
    """

    reference: str
    output: str | None
    probability: float | None
    reference_probability: float | None
    alignment: str | None
    unseen: tuple[str, ...]


@dataclass(frozen=True)
class Difference(ReportedPair):
    """A pair that only one of two models gets right: this one, or the other."""

    reference: str
    output: str | None
    probability: float | None
    other_output: str | None
    other_probability: float | None


@dataclass(frozen=True)
class ModelDifferences:
    """How many pairs both models get right, only this one, only the other, or neither; and which those are."""

    both_right: int
    only_this: int
    only_other: int
    neither: int
    won: tuple[Difference, ...]
    """Pairs that only this model gets right."""
    lost: tuple[Difference, ...]
    """Pairs that only the other model gets right."""

    def to_dict(self) -> dict[str, Any]:
        """The four numbers of pairs, and the pairs that only one model gets right."""
        return self.counts() | {"won": _dicts(self.won), "lost": _dicts(self.lost)}

    def counts(self) -> dict[str, int]:
        """The four counts of pairs."""
        return {name: getattr(self, name) for name in ("both_right", "only_this", "only_other", "neither")}


@dataclass(frozen=True)
class ErrorReport:
    """The errors of a model on some pairs; lists may be truncated, ``right`` counts all."""

    pairs: int
    right: int
    mistakes: tuple[Mistake, ...]
    groups: tuple[Group, ...]
    edits: tuple[Edit, ...]
    against: ModelDifferences | None = None

    @property
    def wrong(self) -> int:
        """Number of outputs that differ from their reference."""
        return self.pairs - self.right

    @property
    def accuracy(self) -> float:
        """Percentage of outputs that equal their reference."""
        return 100.0 * self.right / max(1, self.pairs)

    def summary(self) -> dict[str, Any]:
        """All but the lists of pairs, as a JSON-serialisable dictionary."""
        shown: dict[str, Any] = {
            "pairs": self.pairs,
            "right": self.right,
            "accuracy": self.accuracy,
            "groups": [group.to_dict() for group in self.groups],
            "edits": [edit.to_dict() for edit in self.edits],
        }
        return shown if self.against is None else shown | {"against": self.against.counts()}

    def to_dict(self) -> dict[str, Any]:
        """The same as a JSON-serialisable dictionary."""
        shown = self.summary() | {"mistakes": _dicts(self.mistakes)}
        if self.against is not None:
            shown["against"] = self.against.to_dict()
        return shown


@dataclass(frozen=True)
class Suspect(ReportedPair):
    """A pair with the probability that a model gives its target, and what the model would write instead.

    ``log_probability_per_token`` is the log probability of the target divided by its tokens, the end counted as one.
    """

    target: str
    log_probability_per_token: float
    probability: float
    output: str | None
    output_probability: float | None

    def to_dict(self) -> dict[str, Any]:
        """The same as a JSON-serialisable dictionary; a log probability of ``-inf`` is None."""
        shown = super().to_dict()
        is_possible = math.isfinite(self.log_probability_per_token)
        return shown if is_possible else shown | {"log_probability_per_token": None}


def _dicts(rows: Sequence[ReportedPair]) -> list[dict[str, Any]]:
    return [row.to_dict() for row in rows]


ErrorFormat = Literal["text", "tsv", "jsonl"]
_GROUPS_SHOWN = 20
"""Rows of a table of groups, unless its kind was requested."""
_EDITS_SHOWN = 20
_TITLES = {
    "feature": "by feature",
    "tag": "by tag",
    "length": "by source length",
    "unseen": "by symbols never seen in training",
}
_MISTAKE_HEADER = (
    *("where", "source", "features", "reference", "output"),
    *("probability", "reference_probability", "alignment", "unseen"),
)
_DIFFERENCE_HEADER = (
    *("where", "source", "features", "reference", "output"),
    *("probability", "other_output", "other_probability"),
)
_SUSPECT_HEADER = (
    *("where", "source", "features", "target", "log_probability_per_token"),
    *("probability", "output", "output_probability"),
)


_OPTIONAL = ("alignment", "reference_probability", "other_probability", "output_probability", "where")
"""Columns that are left out of tables in a narrow terminal, in this order."""


def write_errors(
    report: ErrorReport, format: ErrorFormat, names: Sequence[str], by: Sequence[By] = (), width: int | None = None
) -> str:
    """The report on a run, or on a run compared with another, in a format.

    ``by`` are the requested groups. TSV holds one table: the requested groups, else the pairs that one of
    two runs gets right, else the mistakes.
    """
    if format == "jsonl":
        return as_json_lines(_error_objects(report, names))
    if format == "tsv":
        return _errors_tsv(report, names, by)
    lines, sections = list(_error_lines(report, names)), list(_error_sections(report, names, by))
    return as_text(lines, sections, width)


def write_suspects(
    suspects: Sequence[Suspect], format: ErrorFormat, name: str, pairs: int, width: int | None = None
) -> str:
    """The suspicious pairs of a run, among ``pairs`` pairs that were scored, in a format."""
    if format == "jsonl":
        return as_json_lines({"type": "suspicious", **suspect.to_dict()} for suspect in suspects)
    rows = [_cells(suspect, _SUSPECT_HEADER) for suspect in suspects]
    if format == "tsv":
        return as_tsv(_SUSPECT_HEADER, rows)
    lines = [f"run {name}: the {len(suspects):,} least probable of {count_of(pairs, 'pair')}"]
    sections = [_filled("suspicious pairs", _SUSPECT_HEADER, rows)]
    return as_text(lines, sections, width)


def groups_section(kind: str, groups: Sequence[Group], most: int | None = None) -> Section:
    """The groups of a kind with all their metrics, at most ``most``."""
    listed = groups[:most]
    rows: list[list[Cell]] = [
        [group.name, group.pairs, *(format_metric(name, value) for name, value in group.metrics.items())]
        for group in listed
    ]
    left = len(groups) - len(listed)
    by = "features" if kind in ("feature", "tag") else kind
    note = f"... and {left:,} more; --by {by} shows all" if left else ""
    return Section(_TITLES[kind], (kind, "pairs", *groups[0].metrics), rows, note)


def group_sections(groups: Sequence[Group], asked: Iterable[str] = ()) -> Iterator[Section]:
    """A section for every kind of group; those not requested are truncated."""
    in_full = {kind for by in asked for kind in (("feature", "tag") if by == "features" else (by,))}
    for kind in dict.fromkeys(group.by for group in groups):
        members = [group for group in groups if group.by == kind]
        yield groups_section(kind, members, None if kind in in_full else _GROUPS_SHOWN)


def _error_lines(report: ErrorReport, names: Sequence[str]) -> Iterator[str]:
    yield (
        f"run {names[0]}: {report.right:,} of {count_of(report.pairs, 'pair')} right (accuracy {report.accuracy:.2f}), "
        f"{report.wrong:,} wrong"
    )
    if report.against is not None:
        against = report.against
        yield (
            f"against {names[1]}: both right {against.both_right:,}, only {names[0]} {against.only_this:,}, "
            f"only {names[1]} {against.only_other:,}, neither {against.neither:,}"
        )


def _error_sections(report: ErrorReport, names: Sequence[str], by: Sequence[By]) -> Iterator[Section]:
    yield from group_sections(report.groups, by)
    if report.edits:
        yield _edits_section(report.edits)
    if report.against is not None:
        yield from _difference_sections(report.against, names)
    elif report.mistakes:
        rows = [_cells(mistake, _MISTAKE_HEADER) for mistake in report.mistakes]
        yield _filled("mistakes", _MISTAKE_HEADER, rows, left_note(report.wrong - len(report.mistakes)))


def _edits_section(edits: Sequence[Edit]) -> Section:
    rows = [(edit.kind, edit.wanted, edit.written, edit.count, edit.example) for edit in edits[:_EDITS_SHOWN]]
    return Section("most frequent edits", ("edit", "wanted", "written", "count", "example"), rows)


def _difference_sections(against: ModelDifferences, names: Sequence[str]) -> Iterator[Section]:
    for name, rows, count in (
        (names[0], against.won, against.only_this),
        (names[1], against.lost, against.only_other),
    ):
        if rows:
            cells = [_cells(row, _DIFFERENCE_HEADER) for row in rows]
            yield _filled(f"only {name} is right", _DIFFERENCE_HEADER, cells, left_note(count - len(rows)))


def _errors_tsv(report: ErrorReport, names: Sequence[str], by: Sequence[By]) -> str:
    if by:
        rows = [(group.by, group.name, group.pairs, group.metrics["accuracy"]) for group in report.groups]
        return as_tsv(("by", "name", "pairs", "accuracy"), rows)
    if report.against is None:
        return as_tsv(_MISTAKE_HEADER, [_cells(mistake, _MISTAKE_HEADER) for mistake in report.mistakes])
    listed = ((names[0], report.against.won), (names[1], report.against.lost))
    differences = [(name, *_cells(row, _DIFFERENCE_HEADER)) for name, rows in listed for row in rows]
    return as_tsv(("right", *_DIFFERENCE_HEADER), differences)


def _error_objects(report: ErrorReport, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    yield {"type": "summary", "runs": list(names), **report.summary()}
    for mistake in report.mistakes:
        yield {"type": "mistake", **mistake.to_dict()}
    if report.against is not None:
        for name, rows in zip(names, (report.against.won, report.against.lost), strict=True):
            for row in rows:
                yield {"type": "difference", "right": name, **row.to_dict()}


def _cells(row: ReportedPair, header: Sequence[str]) -> list[Cell]:
    """The named fields of a row; features as they are written in files, other lists with spaces between."""
    values = ((name, getattr(row, name)) for name in header)
    return [(";" if name == "features" else " ").join(v) if isinstance(v, tuple) else v for name, v in values]


def _filled(title: str, header: Sequence[str], rows: Sequence[Sequence[Cell]], note: str = "") -> Section:
    return without_empty_columns(Section(title, header, rows, note, _OPTIONAL))
