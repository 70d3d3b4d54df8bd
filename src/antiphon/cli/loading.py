"""Loading of runs by verbs, which choose the number of threads for the whole process."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.terminal import print_note

if TYPE_CHECKING:
    from antiphon.api import Model
    from antiphon.runs.run_folder import RunFolder


def load_run(run: Path, device: str, threads: int | None, settings: Sequence[str] | None = None) -> "Model":
    """The trained model of a run folder; without ``threads``, their number follows from its size.

    ``settings`` such as ``search.beam=20`` change its search.
    """
    import torch

    from antiphon.api import load
    from antiphon.device import choose_threads
    from antiphon.runs.run_folder import RunFolder, widest_layer

    folder = RunFolder.open(run)
    model = load(run, device=device, threads=threads, settings=settings or ())
    note_unfinished(folder, run)
    if threads is None:
        width = widest_layer(folder)
        target_size = len(model.codec.target.vocab) if model.can_predict else width
        torch.set_num_threads(choose_threads(model.recipe.train.batch_size, width, target_size))
    return model


def note_unfinished(folder: "RunFolder", run: Path) -> None:
    """Says that a run is used before its training has ended, if it is."""
    if not folder.metrics() and folder.checkpoint.exists():
        print_note(f"{run}: its training has not ended; this is its best epoch so far")
