"""Show which input each output token belongs to, for given pairs.

A transducer gives alignments: its most probable one, and posteriors. An
attention model gives its attention weights, marked as attention, and for each
token the input with the largest weight. Pharaoh pairs count source symbols and
target tokens from 0.

Pictures are PNG, SVG or PDF: --plot draws the first pair into one file,
--format draws every pair into the folder --out.

Examples:
  antiphon align runs/g2p test.tsv
  antiphon align runs/g2p test.tsv --plot alignment.svg
  antiphon align runs/g2p test.tsv --format png --limit 10
"""

import json
from collections.abc import Iterable
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.loading import load_run
from antiphon.cli.options import Device, PairFiles, Run, Threads
from antiphon.cli.picture_file import PictureFile, check_picture
from antiphon.terminal import printable

if TYPE_CHECKING:
    from antiphon.api import Alignment


class Format(StrEnum):
    """How alignments are written."""

    pharaoh = "pharaoh"
    jsonl = "jsonl"
    png = "png"
    svg = "svg"
    pdf = "pdf"


FormatOption = Annotated[Format, typer.Option(help="i-j pairs, JSON lines with posteriors, or a picture per pair.")]
Folder = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the pictures of --format.")]
Limit = Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="Largest number of pictures.")]


def command(
    run: Run,
    file: PairFiles,
    format: FormatOption = Format.pharaoh,
    plot: PictureFile = None,
    out: Folder = Path("alignments"),
    limit: Limit = 20,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Writes the alignment of every pair."""
    from antiphon.data.readers import pair_files
    from antiphon.training.data.prepare import pairs_of

    if plot is not None:
        check_picture(plot)
    model = load_run(run, device, threads)
    alignments = model.align(pairs_of(model.recipe, pair_files(file)))
    if plot is not None:
        draw(islice(alignments, 1), [plot])
    elif format in (Format.pharaoh, Format.jsonl):
        write(alignments, as_json=format is Format.jsonl)
    else:
        out.mkdir(parents=True, exist_ok=True)
        draw(alignments, [out / f"{number:04d}.{format.value}" for number in range(1, limit + 1)])


def write(alignments: "Iterable[Alignment]", *, as_json: bool) -> None:
    """Prints one line for each pair."""
    for alignment in alignments:
        print(json.dumps(alignment.to_dict(), ensure_ascii=False) if as_json else alignment.pharaoh())


def draw(alignments: "Iterable[Alignment]", paths: Iterable[Path]) -> None:
    """Draws each pair into the file of the same index, as long as there are both, and prints the names."""
    from antiphon.report.plots import plot_alignment

    for path, alignment in zip(paths, alignments, strict=False):
        symbols = alignment.source_symbols, alignment.target_symbols
        plot_alignment(*symbols, alignment.rows, alignment.posterior, path, method=alignment.method)
        print(printable(str(path)))
