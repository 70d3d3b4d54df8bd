"""``antiphon compare``."""

import json
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.options import Beam, Device, References, Threads
from antiphon.errors import InputError, RunError

if TYPE_CHECKING:
    from antiphon.cli.test_set import TestSet
    from antiphon.report.comparison import System


class Format(StrEnum):
    """How the comparison is written."""

    table = "table"
    markdown = "markdown"
    json = "json"


def command(
    paths: Annotated[list[Path], typer.Argument(metavar="RUN RUN... FILE", help="Runs, then a file of pairs.")],
    format: Annotated[Format, typer.Option(help="For the terminal, for a document, or for programs.")] = Format.table,
    reference: References = None,
    beam: Beam = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Evaluate runs on the same pairs and say where they differ from the first one.

    Every metric comes with its signature, a 95 % interval and the p-value of a paired bootstrap against the first run;
    beside them stand parameters, training time and outputs per second.
    """
    from rich.console import Console

    from antiphon.cli.test_set import read_test_set
    from antiphon.report.comparison import as_json, as_markdown, as_table, compare

    *runs, file = paths
    if len(runs) < 2:
        raise InputError("compare: fewer than two runs, expected RUN RUN... FILE")
    systems, test = [], None
    for run in runs:
        loaded = read_system(run, device, threads)
        own_test = read_test_set(loaded.model.recipe, [file], reference or [])
        if test is not None and own_test.pairs != test.pairs:
            raise RunError(
                f"{run}: reads {file} in another way than {runs[0]} (features or direction), expected alike runs"
            )
        test = own_test
        systems.append(answer(loaded, test, beam))
    compared = compare(systems)
    if format is Format.json:
        print(json.dumps(as_json(compared), ensure_ascii=False))
    elif format is Format.markdown:
        print(as_markdown(compared))
    else:
        Console().print(as_table(compared))


def read_system(run: Path, device: str, threads: int | None) -> "System":
    """A run to compare; one that gives no outputs is refused."""
    from antiphon.api import load
    from antiphon.report.comparison import System
    from antiphon.run import RunFolder

    model = load(run, device=device, threads=threads)
    if not model.answers:
        raise RunError(f"{run}: a run of kind {model.kind} gives no outputs, expected a run that does")
    return System(str(run), model, RunFolder.open(run).metrics())


def answer(system: "System", test: "TestSet", beam: int | None) -> "System":
    """The system with its outputs and how fast they came."""
    from antiphon.data.readers import Source

    given = [(Source(pair.source, pair.features), pair.target) for pair in test.pairs]
    started = time.perf_counter()
    outputs = system.model.outputs(given, beam=beam, more_references=test.more_references)
    seconds = time.perf_counter() - started
    log_prob = None
    if system.model.gives_probabilities:
        log_prob = sum(system.model.score(given)), system.model.target_tokens(given)
    return system.with_outputs(outputs, len(given) / seconds, log_prob)
