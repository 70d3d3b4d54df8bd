"""Tables of runs, read from TOML: which runs a table has, on which data, and what is scored.

title = "..."
metric = "accuracy"                          a metric of ``antiphon evaluate``, or a list of them: a column for each
sets = ["ady", "gre"]                        the columns; {set} in paths and settings stands for each
columns = { all = ["ady", "gre"] }           instead: columns that are means over sets
seeds = [1, 2, 3]
train = "g2p2021/{set}.train.tsv.gz"         files below the data folder, ``made/`` (``made_data.py``), ``cut/``
                                             (``prepare.py``), or ``folds/`` (``question_folds.py``)
dev = "g2p2021/{set}.dev.tsv.gz"
score = "g2p2021/{set}.dev.tsv.gz"           unset: the dev file

[[row]]
name = "one layer"
recipe = "g2p"
set = { "model.layers" = 1 }
thesis = { ady = 20.0 }                      what the thesis prints, by column

[[row]]
name = "noisy channel"
combine = { direct = "two layers", lm = "language model" }      rows of this table; their weights are tuned on dev
set = { "search.weights" = [0, 1, 1, 1] }                       settings of the search; a weight of 0 stays 0
"""

import hashlib
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from antiphon.exceptions import AntiphonError
from antiphon.recipe.recipe_file import find_recipe, parse_toml

FOLDER = Path(__file__).parent / "tables"
Part = Literal["direct", "channel", "lm"]


class Column(NamedTuple):
    """A column: the mean of a metric over some sets."""

    name: str
    sets: tuple[str, ...]
    metric: str


def _as_tuple(given: Any) -> Any:
    return (given,) if isinstance(given, str) else given


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Row(_Section):
    """One system: a recipe with settings, or a noisy channel of other rows."""

    name: str
    recipe: str | None = None
    set: dict[str, Any] = {}
    combine: dict[Part, str] | None = None
    seeds: tuple[int, ...] | None = None
    sets: tuple[str, ...] | None = None
    train: str | None = None
    """Another training file than the table's."""
    thesis: dict[str, float] = {}
    """What the thesis prints for this system, by column."""
    hidden: bool = False
    """Trained because other rows need it; not shown."""

    @model_validator(mode="after")
    def _check(self) -> "Row":
        if (self.recipe is None) == (self.combine is None):
            raise ValueError(f"row {self.name!r}: expected either recipe or combine")
        return self


class Table(_Section):
    """Rows of systems by columns of data sets."""

    title: str
    text: str = ""
    """A paragraph for docs/results.md: data, protocol, what the table says."""
    metric: Annotated[tuple[str, ...], BeforeValidator(_as_tuple), Field(min_length=1)]
    show: Literal["value", "error", "percent"] = "value"
    """``error`` shows 100 minus the value, ``percent`` 100 times the value."""
    sets: tuple[str, ...] = ()
    columns: dict[str, tuple[str, ...]] = {}
    """Sets by the columns that are their means; unset: a column for each set."""
    seeds: tuple[int, ...] = (1,)
    train: str
    dev: str
    score: str | None = None
    predict: tuple[str, ...] = ()
    """Further arguments of ``antiphon evaluate``."""
    tune: tuple[str, ...] = ()
    """Further arguments of ``antiphon tune``."""
    questions: dict[str, tuple[str, ...]] = {}
    """Question sets that each run is scored on, by name, with further arguments; ``data:NAME`` is a file.

    Their metrics are called ``NAME map``, ``NAME mrr``.
    """
    published: dict[str, dict[str, float]] = {}
    """Figures of others, by system and set; ``average`` is theirs over these sets."""
    row: tuple[Row, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> "Table":
        names = [row.name for row in self.row]
        if repeated := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"rows with the same name: {', '.join(sorted(repeated))}")
        for row in self.row:
            if unknown := set((row.combine or {}).values()) - set(names):
                raise ValueError(f"row {row.name!r} combines rows that are not there: {', '.join(sorted(unknown))}")
        if bool(self.sets) == bool(self.columns):
            raise ValueError("expected either sets or columns")
        return self

    def shown(self, value: float) -> float:
        """A value of the metric as the table shows it."""
        return {"value": value, "error": 100 - value, "percent": 100 * value}[self.show]

    @property
    def has_average(self) -> bool:
        """Whether the mean over all columns says anything."""
        return len(self.metric) == 1 and len(self.sets or self.columns) > 1

    @property
    def digits(self) -> int:
        """Digits after the point, as many as the thesis prints where it is beside."""
        return 2 if any(row.thesis for row in self.row) else 1

    def has_thesis(self, column: str) -> bool:
        """Whether the thesis prints a figure of the column."""
        return any(column in row.thesis for row in self.row)

    @property
    def all_sets(self) -> tuple[str, ...]:
        """The sets of rows that have none of their own."""
        return self.sets or tuple(dict.fromkeys(name for sets in self.columns.values() for name in sets))

    def columns_of(self, row: Row) -> list[Column]:
        """The columns of the table, for the sets that a row has."""
        sets = {name: (name,) for name in self.sets} | self.columns
        several = len(sets) > 1
        return [
            Column(
                name if len(self.metric) == 1 else f"{name} {metric}" if several else metric,
                members if row.sets is None else tuple(each for each in row.sets if each in (name, *members)),
                metric,
            )
            for name, members in sets.items()
            for metric in self.metric
        ]

    def find(self, name: str) -> Row:
        """The row of a name."""
        return next(row for row in self.row if row.name == name)

    def jobs(self) -> list["Job"]:
        """All runs of the table, those that others are made of first; a seed of all rows before the next seed."""
        jobs = [
            Job(self, row, name, seed)
            for row in self.row
            for seed in row.seeds or self.seeds
            for name in row.sets or self.all_sets
        ]
        return sorted(jobs, key=lambda job: (job.row.combine is not None, job.seed))


@dataclass(frozen=True, eq=False)
class Job:
    """One run: a row of a table on one data set with one seed."""

    table: Table
    row: Row
    set: str
    seed: int

    def path(self, pattern: str) -> str:
        """A path of the table, for this data set."""
        return pattern.format(set=self.set)

    @property
    def files(self) -> dict[str, str]:
        """The files of this run by their role, as the table names them."""
        table = self.table
        train = self.row.train or table.train
        return {
            role: self.path(pattern)
            for role, pattern in (("train", train), ("dev", table.dev), ("score", table.score or table.dev))
        } | self._judgements

    @property
    def _judgements(self) -> dict[str, str]:
        """The files that the arguments of question sets name."""
        return {
            f"{name} {word}": word.removeprefix("data:")
            for name, words in self.table.questions.items()
            for word in words
            if word.startswith("data:")
        }

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the row, without files and seed."""
        return {key: self.path(value) if isinstance(value, str) else value for key, value in self.row.set.items()}

    @property
    def parts(self) -> dict[Part, "Job"]:
        """The runs that a noisy channel is made of."""
        combine = self.row.combine or {}
        return {role: Job(self.table, self.table.find(name), self.set, self.seed) for role, name in combine.items()}

    def key(self, digests: dict[str, str]) -> str:
        """Tells this run from others: what the recipe says today, settings, seed and the contents of its files."""
        recipe = self.row.recipe and parse_toml(find_recipe(self.row.recipe))
        what = [recipe, self.settings, self.seed, digests, self.table.predict]
        what += [part.key(digests) for part in self.parts.values()]
        what += self.table.tune if self.row.combine else ()
        what += [self.table.questions] if self.table.questions else []
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]


def load_table(name: str) -> Table:
    """The table of a name, or of a path to a TOML file."""
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in FOLDER.glob("*.toml")))
        raise AntiphonError(f"{name}: no such table, expected one of {known}, or a TOML file")
    try:
        return Table.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise AntiphonError(f"{path}: {' '.join(str(error).split())}") from None
