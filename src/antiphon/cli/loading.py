"""Loading of runs by verbs, which choose the number of threads for the whole process."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.exceptions import RunError

if TYPE_CHECKING:
    from antiphon.api import Model


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
    if threads is None:
        width = widest_layer(folder)
        target_size = len(model.codec.target.vocab) if model.can_predict else width
        torch.set_num_threads(choose_threads(model.recipe.train.batch_size, width, target_size))
    return model


def load_predicting_run(run: Path, device: str, threads: int | None) -> "Model":
    """The trained model of a run folder, refused if it writes no outputs."""
    model = load_run(run, device, threads)
    if not model.can_predict:
        raise writes_no_outputs(run, model)
    return model


def writes_no_outputs(run: Path, model: "Model") -> RunError:
    """The error for a run that ranks or only scores, where outputs are needed."""
    return RunError(f"{run}: a run of kind {model.kind} writes no outputs, expected a run that does")
