"""Loading of trained models: ``model = antiphon.load("runs/x")``."""

from pathlib import Path

import torch

from antiphon.api.model import Model
from antiphon.device import choose_device
from antiphon.recipe.kinds import KINDS
from antiphon.recipe.recipe_file import Settings, change_search
from antiphon.runs.run_folder import RunFolder
from antiphon.torch_free.inputs import as_path, check_settings, check_threads


def load(run: str | Path, *, device: str = "auto", threads: int | None = None, settings: Settings = ()) -> Model:
    """The trained model of a run, to predict, score, align, rank and evaluate.

    ``run`` is a run folder, or a file of ``antiphon pack``.
    ``device`` is "auto", "cpu" or "cuda". ``threads`` sets PyTorch's number of threads for the whole process; None
    leaves it as it is. ``settings`` change how outputs are searched: ``{"search.length_normalisation": 0.7}``.
    """
    check_threads(threads)
    check_settings(settings, "search.beam", 20)
    folder = RunFolder.open(as_path("run", run))
    if threads is not None:
        torch.set_num_threads(threads)
    return load_opened(folder, Path(run), device=device, settings=settings)


def load_opened(folder: RunFolder, path: Path, *, device: str = "auto", settings: Settings = ()) -> Model:
    """The trained model of a run whose files are verified already; errors name it by ``path``."""
    recipe = change_search(folder.recipe(), settings)
    interface = KINDS[recipe.model.kind].interface()
    with folder.errors_named(path), torch.random.fork_rng(devices=[]):
        # initial weights are drawn before the trained ones replace them
        return interface.open(folder, recipe, choose_device(device))


def load_planner(run: str | Path, settings: Settings = ()) -> Model:
    """The model of a run without its weights: it plans batches and fills in blank inputs, but predicts nothing."""
    folder = RunFolder.open(Path(run))
    recipe = change_search(folder.recipe(), settings)
    return load(run, device="cpu") if KINDS[recipe.model.kind].ranks else Model(recipe, folder.codec(recipe))
