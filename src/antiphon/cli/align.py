"""``antiphon align``."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.loading import load_run
from antiphon.cli.options import Device, Run, Threads

if TYPE_CHECKING:
    from antiphon.api import Alignment


class Format(StrEnum):
    """How alignments are written."""

    pharaoh = "pharaoh"
    jsonl = "jsonl"
    png = "png"
    svg = "svg"
    pdf = "pdf"


def command(
    run: Run,
    file: Annotated[list[Path], typer.Argument(metavar="FILE", help="Pairs: one TSV, or two parallel files.")],
    format: Annotated[
        Format, typer.Option(help="i-j pairs, JSON lines with posteriors, or a picture of every pair.")
    ] = Format.pharaoh,
    out: Annotated[Path, typer.Option(help="Folder for pictures.")] = Path("alignments"),
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Pictures drawn at most.")] = 20,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Write how the inputs and outputs of given pairs go together.

    Of an attention model, JSON lines hold its weights, marked as attention, and the pairs are where it looked most.
    Pharaoh pairs count source symbols and target tokens from 0.

    Example: antiphon align runs/g2p test.tsv --format png
    """
    from antiphon.data.readers import Source, pair_files
    from antiphon.train.prepare import pairs_of

    model = load_run(run, device, threads)
    pairs = pairs_of(model.recipe, pair_files(file))
    alignments = model.align((Source(pair.source, pair.features), pair.target) for pair in pairs)
    for number, alignment in enumerate(alignments, 1):
        if format not in (Format.pharaoh, Format.jsonl):
            draw(alignment, out / f"{number:04d}.{format.value}")
            if number == limit:
                break
        else:
            print(
                alignment.pharaoh() if format is Format.pharaoh else json.dumps(alignment.to_dict(), ensure_ascii=False)
            )


def draw(alignment: "Alignment", path: Path) -> None:
    """Draws one pair and says where."""
    from antiphon.report.plots import plot_alignment
    from antiphon.terminal import printable

    path.parent.mkdir(parents=True, exist_ok=True)
    symbols = alignment.source_symbols, alignment.target_symbols
    plot_alignment(*symbols, alignment.rows, alignment.posterior, path, method=alignment.method)
    print(printable(str(path)))
