"""``antiphon errors``."""

import sys
from enum import StrEnum
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.loading import load_run
from antiphon.cli.options import Beam, ByOption, Device, Run, Threads, parse_breakdowns
from antiphon.exceptions import InputError, RunError

if TYPE_CHECKING:
    from antiphon.api import Model


class Format(StrEnum):
    """How the report is written."""

    text = "text"
    tsv = "tsv"
    markdown = "markdown"
    jsonl = "jsonl"


def command(
    run: Run,
    file: Annotated[list[Path], typer.Argument(metavar="FILE", help="Pairs: one TSV, or two parallel files.")],
    by: ByOption = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="Another run: what the one gets right and the other wrong.", show_default=False
        ),
    ] = None,
    suspicious: Annotated[
        bool,
        typer.Option("--suspicious", help="Score the pairs and list those that the run finds improbable instead."),
    ] = False,
    most: Annotated[int, typer.Option(min=0, max=10**9, help="Pairs listed at most; 0: all.")] = 50,
    format: Annotated[Format, typer.Option(help="For the terminal, for spreadsheets, documents or programs.")] = (
        Format.text
    ),
    out: Annotated[Path | None, typer.Option(help="A new file for the report.", show_default=False)] = None,
    beam: Beam = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """List what a run gets wrong, and where.

    Every mistake has its source, features, reference, output, the probability of both, and the alignment of the output
    as align writes it. Before them stand accuracies by feature, tag, length and unseen symbols, and the most frequent
    edits. TSV holds one table: the mistakes, with --by the accuracies, with --against the pairs that one run alone gets
    right.

    With --suspicious the pairs are scored, not judged: the least probable per token come first, beside what the run
    would write. In a training file these are often errors of the file.

    Example: antiphon errors runs/g2p test.tsv --format markdown --out errors.md
    """
    from antiphon.api import RankingModel
    from antiphon.cli.test_set import note_unknown_features, read_test_set
    from antiphon.report.error_formats import write_errors, write_suspects

    breakdowns = parse_breakdowns(by)
    if suspicious and (breakdowns or against is not None):
        raise InputError("--suspicious: not with --by or --against, expected a command without them")
    check_new(out)
    model = load_run(run, device, threads)
    if isinstance(model, RankingModel):
        raise RunError(f"{run}: a run of kind {model.kind} writes no outputs, expected a run that does")
    pairs = read_test_set(model.recipe, file).pairs
    note_unknown_features(model, pairs)
    width = None if out or not sys.stdout.isatty() else get_terminal_size().columns
    if suspicious:
        found = model.suspicious(pairs, most=most or None, beam=beam)
        write(write_suspects(found, format.value, str(run), len(pairs), width), out)
        return
    other = None if against is None else load_other(against, model, file[0], device, threads)
    report = model.errors(pairs, against=other, by=breakdowns or None, most=most or None, beam=beam)
    names = [str(path) for path in (run, against) if path is not None]
    write(write_errors(report, format.value, names, breakdowns, width), out)


def check_new(out: Path | None) -> None:
    """Refuses a file that is there already, or that has no folder, before anything is computed."""
    if out is None:
        return
    if out.exists() or out.is_symlink():
        raise InputError(f"{out}: exists already, expected the name of a new file")
    if not out.parent.is_dir():
        raise InputError(f"{out}: no folder {out.parent}, expected one that is there")


def load_other(run: Path, model: "Model", file: Path, device: str, threads: int | None) -> "Model":
    """The run to compare with, which must read the pairs in the same way."""
    other = load_run(run, device, threads)
    if not other.answers:
        raise RunError(f"{run}: a run of kind {other.kind} gives no outputs, expected a run that does")
    if other.recipe.data.swap != model.recipe.data.swap or other.reads_features != model.reads_features:
        raise RunError(
            f"{run}: reads {file} in another way than the first run (features or direction), expected alike runs"
        )
    return other


def write(text: str, out: Path | None) -> None:
    """Writes the report to standard output, or into a new file."""
    from antiphon.storage.atomic import write_atomically

    if out is None:
        print(text, end="")
    else:
        write_atomically(out, text.encode("utf-8", "backslashreplace").decode("utf-8"))
