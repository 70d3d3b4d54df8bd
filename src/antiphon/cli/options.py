"""Options that several verbs share, and their bounds."""

import math
import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from antiphon.exceptions import InputError
from antiphon.terminal import one_line

if TYPE_CHECKING:
    from antiphon.metrics.breakdown import By

MOST_AT_ONCE = max(64, os.cpu_count() or 1)
"""Threads or processes at most: far more than there are cores, and few enough to start."""
MOST_HYPOTHESES = 1000
"""Outputs of an input that are searched for at most."""


def finite(value: float | None) -> float | None:
    """The value of an option; nan, which is inside every range, is refused."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is not a finite number")
    return value


def parse_numbers(text: str, most: float) -> list[float]:
    """The numbers between commas, none of them beyond ``most`` on either side of 0; empty if any is wrong."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        return []
    return numbers if all(-most <= number <= most for number in numbers) else []


Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)]
Recipe = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE", help="The name of a recipe (antiphon recipes), or a TOML file.", show_default=False
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting, such as data.train=pairs.tsv; repeatable. antiphon settings lists all keys.",
    ),
]
Device = Annotated[str, typer.Option(help="Where to compute: auto, cpu or cuda.")]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1, max=MOST_AT_ONCE, help="CPU threads; unset: as many as suit the model's size.", show_default=False
    ),
]
Beam = Annotated[
    int | None,
    typer.Option(
        min=1, max=MOST_HYPOTHESES, help="Hypotheses kept per cell; unset: as in the recipe.", show_default=False
    ),
]


class Questions(StrEnum):
    """Sets of questions, by the labels of their candidates."""

    all = "all"
    answerable = "answerable"
    mixed = "mixed"


QuestionsOption = Annotated[Questions, typer.Option("--questions", help="Which questions of answer selection to rank.")]
Qrels = Annotated[
    Path | None, typer.Option(help="TREC judgements that override the file's labels.", show_default=False)
]
References = Annotated[
    list[Path] | None,
    typer.Option(help="Text file with a further reference for every line; repeatable.", show_default=False),
]


BREAKDOWNS = ("features", "length", "unseen")
ByOption = Annotated[
    list[str] | None,
    typer.Option(
        "--by",
        metavar="GROUP",
        help="Metrics of groups of pairs: features (each one, and whole tags), length (of the source) or unseen "
        "(with symbols that training never saw); repeatable.",
        show_default=False,
    ),
]


def parse_breakdowns(given: list[str] | None) -> "list[By]":
    """The groups that are asked for, in the singular or the plural."""
    by: list[By] = []
    for name in given or []:
        found = next((each for each in BREAKDOWNS if name in (each, each.removesuffix("s"), f"{each}s")), None)
        if found is None:
            raise InputError(f"--by {one_line(name)}: no group of pairs, expected {', '.join(BREAKDOWNS)}")
        by.append(cast("By", found))
    return list(dict.fromkeys(by))


class StreamPolicy(StrEnum):
    """How a stream decides what to write."""

    greedy = "greedy"
    beam = "beam"


Policy = Annotated[
    StreamPolicy,
    typer.Option(help="greedy: write once writing is more probable; beam: write what all active hypotheses share."),
]
MOST_BIAS = 1000.0
EmitBias = Annotated[
    float,
    typer.Option(
        min=-MOST_BIAS, max=MOST_BIAS, callback=finite, help="Added to the log odds of writing: higher writes sooner."
    ),
]
Margin = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=1e6,
        callback=finite,
        help="Write what all outputs share that are at most this many nats behind the best; unset: as in the recipe.",
        show_default=False,
    ),
]
