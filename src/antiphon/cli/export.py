"""``antiphon export``: a run as ONNX graphs."""

from pathlib import Path
from typing import Annotated

import typer

from antiphon.cli.options import Run
from antiphon.terminal import printable

Out = Annotated[Path, typer.Option(metavar="FOLDER", help="A new folder for the exported run.")]
Int8 = Annotated[bool, typer.Option("--int8", help="Store weights with 8 bits: a smaller folder, less exact.")]


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

    export_run(run, out, int8=int8)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(printable(f"{out}: {run} for antiphon.lite, {size / 1e6:.1f} MB"))
