"""Error reports: mistakes, accuracy of groups, frequent edits, differences."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from antiphon.metrics.breakdown import By, Edit, Group
from antiphon.report.tables import Cell, Listing, Report, Row, Section, against_line, format_metric
from antiphon.terminal import count_of


@dataclass(frozen=True)
class ReportedPair(Row):
    """A pair that is listed for some reason; ``where`` is its ``file:line``, empty if it came from no file."""

    where: str
    source: str
    features: tuple[str, ...]


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


def error_report(report: ErrorReport, names: Sequence[str], by: Sequence[By] = ()) -> Report:
    """What is written of a run, or of a run compared with another; as TSV the groups that ``by`` requests, if any."""
    table = None
    if by:
        rows = [(group.by, group.name, group.pairs, group.metrics["accuracy"]) for group in report.groups]
        table = Section("", ("by", "name", "pairs", "accuracy"), rows)
    sections = list(group_sections(report.groups, by))
    if report.edits:
        sections.append(_edits_section(report.edits))
    return Report(
        {"runs": list(names), **report.summary()},
        _lines(report, names),
        sections,
        list(_listings(report, names)),
        table,
    )


def suspects_report(suspects: Sequence[Suspect], name: str, pairs: int) -> Report:
    """What is written of the suspicious pairs of a run, among ``pairs`` pairs that were scored."""
    lines = [f"run {name}: the {len(suspects):,} least probable of {count_of(pairs, 'pair')}"]
    return Report(
        {}, lines, [], [Listing("suspicious", "suspicious pairs", _SUSPECT_HEADER, suspects, optional=_OPTIONAL)]
    )


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


def _edits_section(edits: Sequence[Edit]) -> Section:
    rows = [(edit.kind, edit.wanted, edit.written, edit.count, edit.example) for edit in edits[:_EDITS_SHOWN]]
    return Section("most frequent edits", ("edit", "wanted", "written", "count", "example"), rows)


def _lines(report: ErrorReport, names: Sequence[str]) -> list[str]:
    right = f"{report.right:,} of {count_of(report.pairs, 'pair')} right (accuracy {report.accuracy:.2f})"
    against = [] if report.against is None else [against_line(names, report.against.counts())]
    return [f"run {names[0]}: {right}, {report.wrong:,} wrong", *against]


def _listings(report: ErrorReport, names: Sequence[str]) -> Iterator[Listing]:
    left, against = report.wrong - len(report.mistakes), report.against
    yield Listing("mistake", "mistakes", _MISTAKE_HEADER, report.mistakes, left, _OPTIONAL)
    if against is not None:
        of_both = (against.won, against.only_this), (against.lost, against.only_other)
        for name, (rows, count) in zip(names, of_both, strict=True):
            title, labels = f"only {name} is right", {"right": name}
            yield Listing("difference", title, _DIFFERENCE_HEADER, rows, count - len(rows), _OPTIONAL, labels)
