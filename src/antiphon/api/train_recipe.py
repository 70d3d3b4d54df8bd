"""Training from Python: ``antiphon.train("g2p", "runs/mine", settings={"data.train": "train.tsv"})``."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from antiphon.api.model import Model, load
from antiphon.console import PlainConsole
from antiphon.exceptions import InputError, RunError
from antiphon.recipe.recipe_file import Settings, as_table, find_recipe, load_recipe, make_recipe, spooled
from antiphon.recipe.schema import Recipe
from antiphon.terminal import Say, silent
from antiphon.torch_free.inputs import as_path, check_settings, check_threads
from antiphon.training.callback import Callback, ProgressBar
from antiphon.training.distributed import RankZeroFailedError, from_rank_zero, join_process_group
from antiphon.training.fit import train as fit
from antiphon.training.loop import Interrupted

RecipeLike = str | Path | Mapping[str, Mapping[str, Any]] | Recipe
"""A shipped recipe by name, the path of a TOML file, a dict such as ``{"model": {"layers": 2}}``, or a ``Recipe``."""


def train(
    recipe: RecipeLike,
    out: str | Path,
    *,
    settings: Settings = (),
    resume: bool = False,
    force: bool = False,
    device: str = "auto",
    threads: int | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = False,
) -> Model:
    """Trains a recipe, writes the run folder ``out``, and returns the trained model as ``antiphon.load`` does.

    ``recipe`` is the name of a shipped recipe, a path, or a dict of sections. ``settings`` change it:
    ``{"data.train": "a.tsv", "train.max_epochs": 20}``. ``resume`` continues a run that was stopped, or makes it
    longer; ``force`` replaces a run. Methods of ``callbacks`` (subclasses of ``antiphon.Callback``) are called during
    training. ``progress=True`` prints what the command line prints, on standard error.

    Under ``torchrun`` all processes train one model, and each returns it; ``callbacks`` are called on rank 0, and an
    error of rank 0 is raised in all processes.

    Threads, random numbers and other state of PyTorch are afterwards as before. Ctrl-C raises ``KeyboardInterrupt``;
    the last checkpoint is complete, and ``resume=True`` continues from it.
    """
    check_threads(threads)
    _check_callbacks(callbacks)
    say, shown = _shown() if progress else (silent, [])
    join_process_group()
    with ExitStack() as copies:
        try:
            loaded = from_rank_zero(lambda: copies.enter_context(spooled(as_recipe(recipe, settings))))
            run = fit(
                loaded,
                as_path("out", out),
                say=say,
                resume=resume,
                force=force,
                device=device,
                threads=threads,
                callbacks=[*shown, *callbacks],
            )
        except Interrupted as stopped:
            raise KeyboardInterrupt(str(stopped)) from stopped
        except RankZeroFailedError as failed:
            raise RunError(f"rank 0: {failed}") from failed
    return load(run.path, device=device)


def _shown() -> tuple[Say, list[Callback]]:
    """A function that prints lines on standard error, and a progress bar there."""
    console = PlainConsole(stderr=True)
    return partial(console.print, soft_wrap=True), [ProgressBar(console)]


def as_recipe(recipe: RecipeLike, settings: Settings = ()) -> Recipe:
    """The recipe with settings on top."""
    check_settings(settings, "train.seed", 7)
    if isinstance(recipe, Recipe):
        return make_recipe(as_table(recipe), settings)
    if isinstance(recipe, Mapping):
        return make_recipe(recipe, settings)
    return load_recipe(find_recipe(as_path("recipe", recipe)), settings)


def _check_callbacks(callbacks: object) -> None:
    """Refuses anything but a list of callbacks; a class instead of an object is a frequent slip."""
    if not isinstance(callbacks, Sequence) or not all(isinstance(each, Callback) for each in callbacks):
        raise InputError(f"callbacks = {callbacks!r}: expected a list of antiphon.Callback objects")
