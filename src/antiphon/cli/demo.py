"""``antiphon demo``."""

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.options import Threads

if TYPE_CHECKING:
    from rich.console import Console

    from antiphon.api import Model


def command(
    out: Annotated[Path, typer.Option(help="Folder for the run.")] = Path("runs/demo"),
    force: Annotated[bool, typer.Option("--force", help="Train anew even if the folder holds a run.")] = False,
    threads: Threads = None,
) -> None:
    """Learn to pronounce English words from embedded data, in about two minutes, and show what was learnt."""
    from rich.console import Console

    from antiphon.api import load
    from antiphon.config import load_recipe
    from antiphon.demo import RECIPE
    from antiphon.train.fit import train

    console = Console()
    console.print("[bold]Antiphon demo[/]: 30,000 English words and their phonemes (CMU Pronouncing Dictionary)\n")
    train(load_recipe(RECIPE), out, console=console, resume=not force, force=force, device="cpu", threads=threads)
    model = load(out, device="cpu", threads=threads)
    show_errors(model, console)
    show_segments(model, console)
    picture = draw_alignment(model, out)
    console.print(
        f"\nAn alignment is drawn in [bold]{picture}[/], the training curve in [bold]{out / 'training.png'}[/]."
    )
    console.print("\nNext, try\n")
    antiphon = "antiphon" if shutil.which("antiphon") else sys.argv[0]
    for line in (
        f"echo jabberwocky | {antiphon} predict {out}",
        f"echo jabberwocky | {antiphon} predict {out} --nbest 3 --format jsonl",
        f"{antiphon} info {out}",
        f"{antiphon} train recipes/g2p.toml --set data.train=YOUR.tsv --set data.dev=YOUR-DEV.tsv --out runs/mine",
    ):
        console.print(f"  {line}", style="cyan", highlight=False, soft_wrap=True)


def show_errors(model: "Model", console: "Console") -> None:
    """Word and phoneme error on held-out words, beside the baseline's."""
    from rich.table import Table

    from antiphon.data.readers import read_pairs
    from antiphon.demo import FOLDER, closest_pronunciations
    from antiphon.metrics import Outputs, score_outputs

    known, held_out = (list(read_pairs(FOLDER / f"cmudict.{part}.tsv.gz")) for part in ("train", "test"))
    words, wanted = [pair.source for pair in held_out], [[pair.target] for pair in held_out]
    table = Table(title=f"\n{len(words):,} held-out words")
    table.add_column("")
    table.add_column("words wrong", justify="right")
    table.add_column("phonemes wrong", justify="right")
    for name, found in (
        ("closest known word", closest_pronunciations(known, words)),
        ("transducer", [prediction.text for prediction in model.predict(words)]),
    ):
        tokens = [text.split() for text in found], [[text.split() for text in texts] for texts in wanted]
        scores = score_outputs(Outputs(found, wanted, *tokens), ["accuracy", "phoneme_error_rate"])
        table.add_row(name, f"{100 - scores['accuracy'].value:.1f} %", f"{scores['phoneme_error_rate'].value:.1f} %")
    console.print(table)


def show_segments(model: "Model", console: "Console") -> None:
    """What the model read and wrote, segment by segment, for a few words."""
    from rich.table import Table

    from antiphon.demo import WORDS_TO_SHOW

    table = Table(title="\nwhat it read, and what it wrote", show_header=False)
    for prediction in model.predict(WORDS_TO_SHOW):
        segments = "   ".join(f"{''.join(read)} → {' '.join(wrote) or '·'}" for read, wrote in prediction.segments)
        table.add_row(prediction.source, prediction.text, segments)
    console.print(table)


def draw_alignment(model: "Model", out: Path) -> Path:
    """A picture of the first of those words."""
    from antiphon.demo import WORDS_TO_SHOW
    from antiphon.report.plots import plot_alignment

    (prediction,) = model.predict(WORDS_TO_SHOW[1:2])
    (alignment,) = model.align([(prediction.source, prediction.text)])
    path = out / "alignment.png"
    plot_alignment(alignment.source_symbols, alignment.target_symbols, alignment.rows, alignment.posterior, path)
    return path
