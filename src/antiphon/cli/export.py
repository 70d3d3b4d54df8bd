"""``antiphon export`` and ``antiphon pack``: a run as ONNX graphs, or as one file."""

from pathlib import Path
from typing import Annotated

import typer

from antiphon.cli.options import Run, note_unfinished
from antiphon.terminal import printable

Out = Annotated[Path, typer.Option(metavar="FOLDER", help="A new folder for the exported run.")]
Int8 = Annotated[bool, typer.Option("--int8", help="Store weights with 8 bits: a smaller folder, less exact.")]
PackedFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Where to write; default: NAME-OF-RUN.zip in the current folder.")
]
ReplaceFile = Annotated[bool, typer.Option("--force", help="Replace the file, if there is one.")]


def export(run: Run, out: Out, int8: Int8 = False) -> None:
    """Write a run as ONNX graphs, which need no PyTorch.

    The folder holds the graphs of the network, vocabularies and settings; it can be
    copied anywhere. antiphon.lite reads it with numpy and onnxruntime alone (the
    extra lite): the same outputs, probabilities and alignments, and the same
    streams. python -m antiphon.lite FOLDER FILE predicts every line of a file.

    Answer selection, noisy channels, and runs that search over paths, cannot be
    exported.

    Examples:
      antiphon export runs/g2p --out g2p-lite
      antiphon export runs/g2p --out g2p-small --int8
    """
    from antiphon.export.exported_run import export_run
    from antiphon.terminal import printable

    export_run(run, out, int8=int8)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(printable(f"{out}: {run} for antiphon.lite, {size / 1e6:.1f} MB"))


def pack(run: Run, out: PackedFile = None, force: ReplaceFile = False) -> None:
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
    from antiphon.runs.copies import pack_run
    from antiphon.runs.run_folder import RunFolder

    folder = RunFolder.open(run)
    file = out or Path(f"{run.resolve().name.removesuffix('.zip')}.zip")
    pack_run(run, file, force=force)
    note_unfinished(folder, run)
    print(printable(f"{file}: {file.stat().st_size:,} bytes"))
