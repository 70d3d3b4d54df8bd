"""Evaluate runs side by side on the same pairs.

Every metric comes with its signature, a 95 % confidence interval and the
p-value of a paired bootstrap against the first run. The table also shows
parameters, training time and outputs per second; "-" means unknown.

Examples:
  antiphon compare runs/one runs/other test.tsv
  antiphon compare runs/one runs/other test.tsv --format markdown
"""

import json
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli import answer_selection
from antiphon.cli.loading import load_run
from antiphon.cli.options import Beam, Device, Qrels, Questions, QuestionsOption, References, Threads, refuse_options
from antiphon.data.files import is_pipe
from antiphon.exceptions import InputError, RunError

if TYPE_CHECKING:
    from antiphon.cli.test_set import TestSet
    from antiphon.report.comparison import ComparedSystems, System


class Format(StrEnum):
    """How the comparison is written."""

    table = "table"
    markdown = "markdown"
    json = "json"


def command(
    paths: Annotated[list[Path], typer.Argument(metavar="RUN RUN... FILE", help="Runs, then a file of pairs.")],
    format: Annotated[Format, typer.Option(help="For a terminal, a document or a program.")] = Format.table,
    reference: References = None,
    beam: Beam = None,
    questions: QuestionsOption = Questions.all,
    qrels: Qrels = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Evaluates runs side by side on the same file."""
    from antiphon.console import PlainConsole
    from antiphon.recipe.kinds import KINDS
    from antiphon.report.comparison import as_json, as_markdown, as_table
    from antiphon.runs.run_folder import RunFolder
    from antiphon.terminal import printable

    *runs, file = paths
    if len(runs) < 2:
        raise InputError("compare: fewer than two runs, expected RUN RUN... FILE")
    if is_pipe(file):
        raise InputError(f"{file}: a pipe or a device, expected a regular file, since every run reads it")
    kind = KINDS[RunFolder.open(runs[0]).recipe().model.kind]
    if kind.ranks:
        refuse_options(kind.name, {"--reference": reference, "--beam": beam})
        systems = (read_system(run, device, threads) for run in runs)
        compared = answer_selection.compare_rankings(systems, file, questions.value, qrels)
    else:
        refuse_options(kind.name, {"--questions": questions is not Questions.all, "--qrels": qrels})
        compared = compare_outputs(runs, file, reference or [], beam, device, threads)
    if format is Format.json:
        print(json.dumps(as_json(compared), ensure_ascii=False))
    elif format is Format.markdown:
        print(printable(as_markdown(compared)))
    else:
        PlainConsole().print(as_table(compared))


def compare_outputs(
    runs: list[Path], file: Path, references: list[Path], beam: int | None, device: str, threads: int | None
) -> "ComparedSystems":
    """Compares the outputs of runs on the same pairs."""
    from antiphon.cli.test_set import read_test_set
    from antiphon.report.comparison import compare

    systems, test = [], None
    for run in runs:
        loaded = read_system(run, device, threads)
        if not loaded.model.can_predict:
            raise RunError(f"{run}: a run of kind {loaded.model.kind} writes no outputs, expected a run that does")
        own_test = read_test_set(loaded.model.recipe, [file], references)
        if test is not None and own_test.pairs != test.pairs:
            raise RunError(
                f"{run}: reads {file} differently from {runs[0]} (features or direction), expected runs that read it "
                "the same way"
            )
        test = own_test
        systems.append(predict_all(loaded, test, beam))
    return compare(systems)


def read_system(run: Path, device: str, threads: int | None) -> "System":
    """The loaded run with its training metrics."""
    from antiphon.report.comparison import System
    from antiphon.runs.run_folder import RunFolder

    return System(str(run), load_run(run, device, threads), RunFolder.open(run).metrics())


def predict_all(system: "System", test: "TestSet", beam: int | None) -> "System":
    """The system with its outputs and their speed."""
    from antiphon.data.readers import Source

    given = [(Source(pair.source, pair.features), pair.target) for pair in test.pairs]
    started = time.perf_counter()
    outputs = system.model.outputs(given, beam=beam, more_references=test.more_references)
    seconds = time.perf_counter() - started
    log_prob = None
    if system.model.can_score:
        log_prob = sum(system.model.score(given)), system.model.target_tokens(given)
    return system.with_outputs(outputs, len(given) / seconds, log_prob)
