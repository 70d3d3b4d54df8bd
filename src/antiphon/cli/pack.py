"""Pack a trained run into one file that can be copied anywhere.

The file is a zip of what prediction needs: settings, vocabularies, weights, and
the runs that a noisy channel or an ensemble is made of. It has no code, no
checkpoint and no path of your data. The same run gives the same bytes. Every
command that reads a run folder reads a packed run too. A run that was stopped
is packed with its best weights so far.

Examples:
  antiphon pack runs/g2p
  antiphon pack runs/g2p --out g2p-2.zip --force
"""

from pathlib import Path
from typing import Annotated

import typer

from antiphon.cli.options import Run, note_unfinished
from antiphon.terminal import printable

Out = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Where to write; default: NAME-OF-RUN.zip in the current folder.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace the file, if there is one.")]


def command(run: Run, out: Out = None, force: Force = False) -> None:
    """Packs a run into one file."""
    from antiphon.runs.copies import pack_run
    from antiphon.runs.run_folder import RunFolder

    folder = RunFolder.open(run)
    file = out or Path(f"{run.resolve().name.removesuffix('.zip')}.zip")
    pack_run(run, file, force=force)
    note_unfinished(folder, run)
    print(printable(f"{file}: {file.stat().st_size:,} bytes"))
