"""``antiphon errors``: reports what a run gets wrong."""

import sys
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from antiphon.cli import answer_selection
from antiphon.cli.options import (
    Beam,
    ByOption,
    Device,
    PairFiles,
    Run,
    Threads,
    check_new,
    load_predicting_run,
    load_run,
    note_unknown_features,
    parse_breakdowns,
    read_test_set,
    refuse_options,
)
from antiphon.exceptions import InputError, RunError
from antiphon.storage.files import write_atomically

if TYPE_CHECKING:
    from antiphon.api.model import Model


Format = Literal["text", "tsv", "jsonl"]
"""How the report is written."""
Against = Annotated[
    Path | None, typer.Option(metavar="RUN", help="Also list the pairs that only one of the two runs gets right.")
]
Suspicious = Annotated[
    bool, typer.Option("--suspicious", help="List the pairs that the run finds improbable instead of its mistakes.")
]
Most = Annotated[int, typer.Option(metavar="N", min=0, max=10**9, help="Maximum number of pairs to list; 0: all.")]
FormatOption = Annotated[Format, typer.Option(help="For a terminal, a spreadsheet or a program.")]
Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report to this new file.")]


def errors(
    run: Run,
    file: PairFiles,
    by: ByOption = None,
    against: Against = None,
    suspicious: Suspicious = False,
    most: Most = 50,
    format: FormatOption = "text",
    out: Out = None,
    beam: Beam = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """List what a run gets wrong, and where.

    The report starts with accuracies by feature, tag, length and unseen symbols and
    with the most frequent edits. Then comes every mistake with its source, features,
    reference, output, both probabilities and alignment. TSV holds one table: the
    mistakes, with --by the accuracies, with --against the pairs that only one of the
    runs gets right.

    With --suspicious, pairs are scored instead of judged. The least probable targets
    per token come first, beside the output of the run. In a training file these are
    often errors in the data.

    For answer selection a question is right if a right sentence is first. The report
    shows the ranks of the best right sentences and, of each mistake, that sentence and
    the one before it, each with the words that the model looked at most.

    Examples:
      antiphon errors runs/g2p test.tsv
      antiphon errors runs/g2p test.tsv --format tsv --out errors.tsv
      antiphon errors runs/g2p train.tsv --suspicious --most 20
    """
    from antiphon.api.ranking_model import RankingModel
    from antiphon.report.error_report import error_report, suspects_report
    from antiphon.report.ranking_errors import ranking_report

    breakdowns = parse_breakdowns(by)
    if suspicious and (breakdowns or against is not None):
        raise InputError("--suspicious: does not work with --by or --against, expected a command without them")
    check_new(out)
    model = load_run(run, device, threads)
    names = [str(path) for path in (run, against) if path is not None]
    width = None if out or not sys.stdout.isatty() else get_terminal_size().columns
    if isinstance(model, RankingModel):
        refuse_options(
            model.kind, {"--by": by, "--suspicious": suspicious, "--beam": beam, str(file[-1]): len(file) > 1}
        )
        ranking = None if against is None else answer_selection.load_ranking_run(against, device, threads)
        questions = answer_selection.find_errors(model, file[0], ranking)
        write(ranking_report(questions, names, most or None).write(format, width), out)
        return
    pairs = read_test_set(model.recipe, file).pairs
    note_unknown_features(model, pairs)
    if suspicious:
        suspects = model.suspicious(pairs, most=most or None, beam=beam)
        write(suspects_report(suspects, str(run), len(pairs)).write(format, width), out)
        return
    other = None if against is None else load_other(against, model, file[0], device, threads)
    found = model.errors(pairs, against=other, by=breakdowns or None, most=most or None, beam=beam)
    write(error_report(found, names, breakdowns).write(format, width), out)


def load_other(run: Path, model: "Model", file: Path, device: str, threads: int | None) -> "Model":
    """The run to compare with, which must read the pairs in the same way."""
    other = load_predicting_run(run, device, threads)
    if other.recipe.data.swap != model.recipe.data.swap or other.reads_features != model.reads_features:
        raise RunError(
            f"{run}: reads {file} differently from the first run (features or direction), expected runs that read it "
            "the same way"
        )
    return other


def write(text: str, out: Path | None) -> None:
    """Writes the report to standard output, or into a new file."""
    if out is None:
        print(text, end="")
    else:
        write_atomically(out, text.encode("utf-8", "backslashreplace").decode("utf-8"))
