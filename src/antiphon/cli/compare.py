"""``antiphon compare``: evaluates runs side by side on the same file."""

import json
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli import answer_selection
from antiphon.cli.options import (
    Beam,
    Device,
    Qrels,
    Questions,
    QuestionsOption,
    References,
    Threads,
    load_predicting_run,
    refuse_options,
)
from antiphon.exceptions import InputError, RunError
from antiphon.terminal import one_line, print_note
from antiphon.torch_free.readers import is_pipe

if TYPE_CHECKING:
    from antiphon.api import Model
    from antiphon.cli.options import TestSet
    from antiphon.metrics.output_metrics import Outputs
    from antiphon.report.comparison import ComparedSystems, System


class Format(StrEnum):
    """How the comparison is written."""

    table = "table"
    markdown = "markdown"
    json = "json"


def compare(
    paths: Annotated[list[Path], typer.Argument(metavar="RUN RUN... FILE", help="Runs, then a file of pairs.")],
    format: Annotated[Format, typer.Option(help="For a terminal, a document or a program.")] = Format.table,
    reference: References = None,
    beam: Beam = None,
    questions: QuestionsOption = Questions.all,
    qrels: Qrels = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Evaluate runs side by side on the same pairs.

    Every metric comes with its signature, a 95 % confidence interval and the
    p-value of a paired bootstrap against the first run. The table also shows
    parameters, training time and outputs per second; "-" means unknown.

    Examples:
      antiphon compare runs/one runs/other test.tsv
      antiphon compare runs/one runs/other test.tsv --format markdown
    """
    from antiphon.console import PlainConsole
    from antiphon.recipe.kinds import KINDS
    from antiphon.report.comparison import as_json, as_markdown, as_table, notes
    from antiphon.runs.run_folder import RunFolder
    from antiphon.terminal import printable

    *runs, file = paths
    if len(runs) < 2:
        raise InputError("compare: fewer than two runs, expected RUN RUN... FILE")
    if file == Path("-") or is_pipe(file):
        raise InputError(f"{file}: a pipe or a device, expected a regular file, since every run reads it")
    kind = KINDS[RunFolder.open(runs[0]).recipe().model.kind]
    if kind.ranks:
        refuse_options(kind.name, {"--reference": reference, "--beam": beam})
        compared = answer_selection.compare_rankings(runs, file, questions.value, qrels, device, threads)
    else:
        refuse_options(kind.name, {"--questions": questions is not Questions.all, "--qrels": qrels})
        compared = compare_outputs(runs, file, reference or [], beam, device, threads)
    if format is Format.json:
        print(json.dumps(as_json(compared), ensure_ascii=False))
    elif format is Format.markdown:
        print(printable(as_markdown(compared)))
    else:
        console = PlainConsole()
        console.print(as_table(compared))
        console.print("\n".join(notes(compared)), soft_wrap=True)


def compare_outputs(
    runs: list[Path], file: Path, references: list[Path], beam: int | None, device: str, threads: int | None
) -> "ComparedSystems":
    """Compares the outputs of runs on the same pairs."""
    from antiphon.cli.options import read_test_set
    from antiphon.report.comparison import compare
    from antiphon.runs.build import task_metrics

    first = load_predicting_run(runs[0], device, threads)
    test = read_test_set(first.recipe, [file], references)
    results = [predict_all(runs[0], first, test, beam, first)]
    for run in runs[1:]:
        other = load_predicting_run(run, device, threads)
        if read_test_set(other.recipe, [file], references).pairs != test.pairs:
            raise RunError(
                f"{run}: reads {file} differently from {runs[0]} (columns, features or direction), expected runs that "
                "read it the same way"
            )
        check_same_tokens((run, other), (runs[0], first), test)
        results.append(predict_all(run, other, test, beam, first))
    systems, outputs = zip(*results, strict=True)
    return compare(systems, outputs, task_metrics(first.recipe.data))


def check_same_tokens(other: "tuple[Path, Model]", first: "tuple[Path, Model]", test: "TestSet") -> None:
    """Refuses to compare two runs, each with its model, whose metrics count different tokens; notes their vocabularies.

    Vocabularies may differ: metrics are of text. Only perplexity depends on which tokens are known.
    """
    (run, theirs), (first_run, ours) = ((run, model.codec.target) for run, model in (other, first))
    for pair in test.pairs:
        if theirs.tokens(pair.target) != ours.tokens(pair.target):
            raise RunError(
                f"{run}: reads the target {one_line(pair.target)} as other tokens than {first_run}, expected runs with "
                "the same target tokens and normalisation"
            )
    if theirs.vocab != ours.vocab:
        print_note(f"{run}: its target vocabulary differs from that of {first_run}, so its perplexity is left out")


def predict_all(
    run: Path, model: "Model", test: "TestSet", beam: int | None, first: "Model"
) -> "tuple[System, Outputs]":
    """The outputs of a run, with their speed, and the perplexity of the references if it has the vocabulary of another.

    Perplexities with other vocabularies cannot be compared.
    """
    from antiphon.metrics.output_metrics import perplexity
    from antiphon.report.comparison import System
    from antiphon.runs.run_folder import RunFolder
    from antiphon.torch_free.readers import Source

    given = [(Source(pair.source, pair.features), pair.target) for pair in test.pairs]
    can_score = model.can_score and model.codec.target.vocab == first.codec.target.vocab
    started = time.perf_counter()
    outputs = model.outputs(given, beam=beam, more_references=test.more_references)
    per_second = len(given) / (time.perf_counter() - started)
    value = perplexity(sum(model.score(given)), model.target_tokens(given)).value if can_score else None
    return System(str(run), model.kind, RunFolder.open(run).metrics(), per_second, value), outputs
