"""Loading of runs by verbs, which choose the number of threads for the whole process."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.exceptions import RunError
from antiphon.terminal import print_note

if TYPE_CHECKING:
    from antiphon.api import Model
    from antiphon.runs.run_folder import RunFolder


def load_run(run: Path, device: str, threads: int | None, settings: Sequence[str] | None = None) -> "Model":
    """The trained model of a run folder; without ``threads``, their number follows from its size.

    ``settings`` such as ``search.beam=20`` change its search.
    """
    (model,) = load_runs([run], device, threads, settings)
    return model


def load_runs(
    runs: Sequence[Path], device: str, threads: int | None, settings: Sequence[str] | None = None
) -> "list[Model]":
    """The trained models of run folders; without ``threads``, their number follows from the size of the largest."""
    import torch

    from antiphon.api.load_model import load_opened
    from antiphon.runs.run_folder import RunFolder

    if threads is not None:
        torch.set_num_threads(threads)
    folders = [RunFolder.open(run) for run in runs]
    models = [
        load_opened(folder, run, device=device, settings=settings or ())
        for folder, run in zip(folders, runs, strict=True)
    ]
    for folder, run in zip(folders, runs, strict=True):
        note_unfinished(folder, run)
    if threads is None:
        torch.set_num_threads(max(map(_suitable_threads, folders, models)))
    return models


def _suitable_threads(folder: "RunFolder", model: "Model") -> int:
    """The number of threads that suits the layers of a run and its target vocabulary; a ranker has none."""
    from antiphon.device import choose_threads
    from antiphon.recipe.kinds import KINDS
    from antiphon.runs.run_folder import widest_layer

    width = widest_layer(folder)
    target_size = width if KINDS[model.kind].ranks else len(model.codec.target.vocab)
    return choose_threads(model.recipe.train.batch_size, width, target_size)


def load_predicting_run(run: Path, device: str, threads: int | None) -> "Model":
    """The trained model of a run folder, refused if it writes no outputs."""
    model = load_run(run, device, threads)
    if not model.can_predict:
        raise writes_no_outputs(run, model)
    return model


def writes_no_outputs(run: Path, model: "Model") -> RunError:
    """The error for a run that ranks or only scores, where outputs are needed."""
    return RunError(f"{run}: a run of kind {model.kind} writes no outputs, expected a run that does")


def note_unfinished(folder: "RunFolder", run: Path) -> None:
    """Says that a run is used before its training has ended, if it is."""
    if not folder.metrics() and folder.checkpoint.exists():
        print_note(f"{run}: its training has not ended; this is its best epoch so far")
