"""Tables of runs, read from TOML: which runs a table has, on which data, and what is scored.

title = "..."
metric = "accuracy"                          a metric of ``antiphon evaluate``, or a list of them: a column for each;
                                             ``runaways`` and ``greedy runaways`` count outputs that do not end
sets = ["ady", "gre"]                        the columns; {set} in paths and settings stands for each
columns = { all = ["ady", "gre"] }           instead: columns that are means over sets
seeds = [1, 2, 3]
train = "g2p2021/{set}.train.tsv.gz"         files below the data folder, ``made/`` (``made_data.py``), ``cut/``
                                             (``prepare.py``), or ``folds/`` (``question_folds.py``)
dev = "g2p2021/{set}.dev.tsv.gz"
score = "g2p2021/{set}.dev.tsv.gz"           unset: the dev file

[[row]]
name = "one layer"
recipe = "g2p"                               ``FILE``: the training file alone, as ``antiphon train FILE`` learns it
set = { "model.layers" = 1 }
constants = { "antiphon.nn.recurrent._EMBEDDING_STD" = 0.06 }   constants of the code that an ablation changes
members = 5                                  an ensemble of as many seeds: ``antiphon train --seeds``
thesis = { ady = 20.0 }                      what the thesis prints, by column

[[row]]
name = "noisy channel"
combine = { direct = "two layers", lm = "language model" }      rows of this table; their weights are tuned on dev
set = { "search.weights" = [0, 1, 1, 1] }                       settings of the search; a weight of 0 stays 0

[[row]]
name = "CLUZH"
predictions = "predictions/cluzh.{set}.tsv.gz"                  published outputs, scored item by item (``by_seen``)
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
from antiphon.torch_free.readers import SOURCE_TARGET_FEATURES, ColumnOrder, read_text

FOLDER = Path(__file__).parent / "tables"
FROM_FILE = "FILE"
"""Stands for a recipe where the file alone decides."""
_RECIPES_OF_FILES = ("letters", "g2p", "inflection", "words")
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
    constants: dict[str, float] = {}
    """Constants of modules that are changed in training, by their full names."""
    members: int | None = None
    """Seeds that are trained at once, as an ensemble."""
    combine: dict[Part, str] | None = None
    predictions: str | None = None
    """A file with published outputs of another system, in the format of the scored file."""
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
        if [self.recipe, self.combine, self.predictions].count(None) != 2:
            raise ValueError(f"row {self.name!r}: expected one of recipe, combine and predictions")
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
    file_columns: ColumnOrder = SOURCE_TARGET_FEATURES
    """The order of the columns of all files."""
    by_seen: bool = False
    """Whether items are scored one by one, also by whether training has seen their lemma and their tags."""
    by_set: bool = False
    """Whether the first metric of every set stands in a second table, whose rows are sets."""
    predict: tuple[str, ...] = ()
    """Further arguments of ``antiphon evaluate``, for rows that are shown."""
    tune: tuple[str, ...] = ()
    """Further arguments of ``antiphon tune``."""
    questions: dict[str, tuple[str, ...]] = {}
    """Question sets that each run is scored on, by name, with further arguments; ``data:NAME`` is a file.

    Their metrics are called ``NAME map``, ``NAME mrr``.
    """
    published: dict[str, dict[str, float]] = {}
    """Figures of others, by system and set; ``average`` is theirs over these sets."""
    worst_seed: bool = False
    """Whether the worst seed of each figure stands behind its mean."""
    row: tuple[Row, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> "Table":
        names = [row.name for row in self.row]
        if repeated := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"rows with the same name: {', '.join(sorted(repeated))}")
        for row in self.row:
            if row.predictions and not self.by_seen:
                raise ValueError(f"row {row.name!r} has predictions, which only a table with by_seen scores")
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
    def counts_runaways(self) -> bool:
        """Whether outputs that do not end are counted, which takes predictions of their own."""
        return any("runaways" in name for name in self.metric)

    @property
    def published_predictions(self) -> list[Row]:
        """The rows of other systems whose outputs are known."""
        return [row for row in self.row if row.predictions]

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
        paths = {"train": train, "dev": table.dev, "score": table.score or table.dev}
        if self.row.predictions:
            paths["predictions"] = self.row.predictions
        return {role: self.path(pattern) for role, pattern in paths.items()} | self._judgements

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
        settings = {key: self.path(value) if isinstance(value, str) else value for key, value in self.row.set.items()}
        if self.table.file_columns != SOURCE_TARGET_FEATURES:
            settings["data.columns"] = self.table.file_columns
        return settings

    @property
    def parts(self) -> dict[Part, "Job"]:
        """The runs that a noisy channel is made of."""
        combine = self.row.combine or {}
        return {role: Job(self.table, self.table.find(name), self.set, self.seed) for role, name in combine.items()}

    def key(self, digests: dict[str, str]) -> str:
        """Tells this run from others: the recipe of today with the row's settings, seed and contents of the files.

        What a row sets may be what the recipe says: a part that becomes, or was, the default is the same run.
        """
        names = _RECIPES_OF_FILES if self.row.recipe == FROM_FILE else (self.row.recipe,) if self.row.recipe else ()
        settings = {
            ".".join([*([name] if len(names) > 1 else []), section, key]): value
            for name in names
            for section, values in parse_toml(read_text(find_recipe(name))).items()
            for key, value in values.items()
        }
        what = [settings | self.settings, self.seed, digests, self.table.predict]
        what += [part.key(digests) for part in self.parts.values()]
        what += self.table.tune if self.row.combine else ()
        what += [self.table.questions] if self.table.questions else []
        what += [self.row.constants] if self.row.constants else []
        what += [f"{self.row.members} members"] if self.row.members else []
        what += ["runaways"] if self.table.counts_runaways else []
        what += ["by seen"] if self.table.by_seen else []
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]


def load_table(name: str) -> Table:
    """The table of a name, or of a path to a TOML file."""
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in FOLDER.glob("*.toml")))
        raise AntiphonError(f"{name}: no such table, expected one of {known}, or a TOML file")
    try:
        return Table.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except tomllib.TOMLDecodeError as error:
        raise AntiphonError(f"{path}: {error}") from None
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        raise AntiphonError(f"{path}: {'; '.join(problems)}") from None
