"""Options that several commands share, their bounds, and checks of the files that they name."""

import math
import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from antiphon.exceptions import InputError, RunError
from antiphon.storage.manifest import RUN_FILES, holds_run
from antiphon.terminal import one_line
from antiphon.torch_free.inputs import MAX_BIAS

if TYPE_CHECKING:
    from antiphon.metrics.breakdown import By

MAX_PARALLEL = max(64, os.cpu_count() or 1)
"""Maximum number of threads or processes: more than the cores, and few enough to start."""
MAX_HYPOTHESES = 1000
"""Maximum number of hypotheses and outputs per input."""
_PICTURE_FORMATS = ("png", "svg", "pdf")


def refuse_options(kind: str, given: Mapping[str, object]) -> None:
    """Refuses options that do not apply to the kind of run."""
    for option, value in given.items():
        if value:
            raise RunError(f"{option}: does not apply to a run of kind {kind}, expected a command without it")


def finite(value: float | None) -> float | None:
    """The value of an option; NaN, which passes every range check, is refused."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is not a finite number")
    return value


def parse_numbers(text: str, most: float) -> list[float]:
    """The comma-separated numbers, at most ``most`` in absolute value; empty if any is invalid."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        return []
    return numbers if all(-most <= number <= most for number in numbers) else []


Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a file of antiphon pack.")]
Recipe = Annotated[
    str, typer.Argument(metavar="RECIPE", help="Name of a recipe (see antiphon recipes), or a TOML file.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting, such as data.train=pairs.tsv; repeatable. Keys: antiphon settings [KEY].",
    ),
]
SearchSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change how outputs are searched, such as search.length_normalisation=0.7; repeatable. "
        "Keys: antiphon settings search.",
    ),
]
PairFiles = Annotated[list[Path], typer.Argument(metavar="FILE", help="Pairs: one TSV, or two parallel files.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the run in the folder, if there is one.")]
Device = Annotated[str, typer.Option("--device", metavar="DEVICE", help="Where to compute: auto, cpu or cuda.")]
Threads = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, max=MAX_PARALLEL, help="CPU threads; default: chosen by the size of the model."),
]
Beam = Annotated[
    int | None, typer.Option(metavar="N", min=1, max=MAX_HYPOTHESES, help="Beam size; default: that of the recipe.")
]


class Format(StrEnum):
    """How outputs are written."""

    text = "text"
    jsonl = "jsonl"


class Questions(StrEnum):
    """Sets of questions, by the labels of their candidates."""

    all = "all"
    answerable = "answerable"
    mixed = "mixed"


QuestionsOption = Annotated[Questions, typer.Option("--questions", help="Answer selection: which questions to rank.")]
Qrels = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Answer selection: TREC judgements that replace the labels of the file."),
]
References = Annotated[
    list[Path] | None, typer.Option(metavar="FILE", help="Text file with another reference for every line; repeatable.")
]


BREAKDOWNS = ("features", "length", "unseen")
ByOption = Annotated[
    list[str] | None,
    typer.Option(
        "--by",
        metavar="GROUP",
        help="Also show metrics by group: features (single ones, and whole tags), length (of the source) or unseen "
        "(symbols that training never saw); repeatable.",
    ),
]


def parse_breakdowns(given: list[str] | None) -> "list[By]":
    """The requested groups; singular and plural both work."""
    by: list[By] = []
    for name in given or []:
        found = next((each for each in BREAKDOWNS if name in (each, each.removesuffix("s"), f"{each}s")), None)
        if found is None:
            raise InputError(f"--by {one_line(name)}: unknown group, expected {', '.join(BREAKDOWNS)}")
        by.append(cast("By", found))
    return list(dict.fromkeys(by))


class StreamPolicy(StrEnum):
    """How a stream decides what to write."""

    greedy = "greedy"
    beam = "beam"


Policy = Annotated[
    StreamPolicy,
    typer.Option(help="greedy: write once writing is more probable; beam: write what all hypotheses share."),
]
EmitBias = Annotated[
    float,
    typer.Option(
        metavar="X",
        min=-MAX_BIAS,
        max=MAX_BIAS,
        callback=finite,
        help="Added to the log odds of writing; higher writes sooner.",
    ),
]
Margin = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=0.0,
        max=1e6,
        callback=finite,
        help="Policy beam: ignore hypotheses more than this many nats behind the best; default: that of the recipe.",
    ),
]
PictureFile = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Draw into this file: PNG, SVG or PDF by its ending.")
]


def refuse_run_file(out: Path) -> None:
    """Refuses the name of a file of a run in a run folder: the run would count as damaged."""
    if out.name in RUN_FILES and holds_run(out.parent):
        raise InputError(f"{out}: the name of a file of the run in that folder, expected another name")


def check_new(out: Path | None) -> None:
    """Refuses a file that exists, or whose folder does not, before anything is computed."""
    if out is None:
        return
    if out.exists() or out.is_symlink():
        raise InputError(f"{out}: exists already, expected the name of a new file")
    if not out.parent.is_dir():
        raise InputError(f"{out}: no folder {out.parent}, expected an existing one")
    refuse_run_file(out)


def check_picture(path: Path) -> None:
    """Refuses a file that no picture can be drawn into, before anything is computed."""
    from antiphon.report.plots import check_drawing_library

    if path.suffix.removeprefix(".").lower() not in _PICTURE_FORMATS:
        raise InputError(f"--plot {path}: unknown picture format, expected a name that ends in .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise InputError(f"--plot {path}: no folder {path.parent}, expected an existing one")
    refuse_run_file(path)
    check_drawing_library()
