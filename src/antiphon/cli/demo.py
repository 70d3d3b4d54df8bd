"""``antiphon demo``: trains on the embedded data and shows the result."""

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from antiphon.cli.options import Threads


def demo(
    out: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="Folder for the run; the runs of the second part are in OUT-spelling."),
    ] = Path("runs/demo"),
    force: Annotated[bool, typer.Option("--force", help="Train again even if the folders hold runs.")] = False,
    threads: Threads = None,
) -> None:
    """Learn to pronounce and spell English words; show the result.

    Trains on data that come with the package, on one core, in about four minutes.
    The first result comes after about two.

    Examples:
      antiphon demo
      antiphon demo --out /tmp/demo
    """
    from antiphon.console import PlainConsole
    from antiphon.demo.lessons import learn_to_pronounce, learn_to_spell
    from antiphon.device import prepare_allocators

    prepare_allocators("cpu")
    console = PlainConsole()
    spelling = Path(f"{out}-spelling")
    learn_to_pronounce(out, console, force=force, threads=threads)
    learn_to_spell(spelling, console, force=force, threads=threads)
    console.print("\nNext, try\n")
    antiphon = program_name()
    for line in (
        f"echo jabberwocky | {antiphon} predict {out}",
        f"echo jabberwocky | {antiphon} predict {out} --nbest 3 --format jsonl",
        f"echo F OW T AA N | {antiphon} predict {spelling / 'noisy'} --nbest 3 --format jsonl",
        f"{antiphon} info {out}",
        f"{antiphon} train g2p --set data.train=YOUR.tsv --set data.dev=YOUR-DEV.tsv --out runs/mine",
    ):
        console.print(f"  {line}", style="cyan", soft_wrap=True)
    console.print("\nand watch the runs read and write, on a page\n")
    served = " ".join(str(run) for run in (out, spelling / "noisy", spelling / "channel", spelling / "lm"))
    console.print(f"  {antiphon} serve {served}", style="cyan", soft_wrap=True)


def program_name() -> str:
    """What to type to call this program again."""
    if shutil.which("antiphon"):
        return "antiphon"
    return "python -m antiphon" if Path(sys.argv[0]).name == "__main__.py" else sys.argv[0]
