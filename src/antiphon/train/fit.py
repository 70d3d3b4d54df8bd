"""Training from a recipe to a finished run folder."""

from contextlib import suppress
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from rich.console import Console

from antiphon import __version__
from antiphon.build import count_parameters, fitting_measures
from antiphon.config import Recipe
from antiphon.device import choose_device, choose_threads
from antiphon.errors import InputError, RecipeError, count_of
from antiphon.kinds import RANKING_KINDS
from antiphon.metrics.ranking import RANKING_MEASURES
from antiphon.report.plots import plot_training
from antiphon.run import RunFolder, staged_run
from antiphon.train.checkpoint import load_checkpoint
from antiphon.train.count import train_overlap, train_suffix_rules
from antiphon.train.generation import GenerationTask
from antiphon.train.keeper import Keeper
from antiphon.train.loop import Interrupted, Task, run_epochs
from antiphon.train.matching import MatchingTask
from antiphon.train.memory import forecast

__all__ = ["Interrupted", "dry_run", "train"]

_COUNTED = {"suffix_rule": train_suffix_rules, "overlap": train_overlap}
"""Kinds that learn by counting, without epochs."""


def train(
    recipe: Recipe,
    out: Path,
    *,
    console: Console,
    resume: bool = False,
    force: bool = False,
    device: str = "auto",
    threads: int | None = None,
) -> RunFolder:
    """Trains what the recipe describes and leaves it in the folder ``out``."""
    _check_kind(recipe)
    tasks = _tasks(recipe)
    task: Task
    if resume and (out / "recipe.toml").exists():
        run = RunFolder.open(out)
        stored = run.recipe()
        _refuse_other_settings(stored, recipe, out)
        if run.metrics():
            console.print(f"{out}: training has ended already, nothing to resume")
            return run
        task = tasks.resume(stored, run, console.print)
    elif recipe.model.kind in _COUNTED:
        with staged_run(out, force=force) as run:
            _COUNTED[recipe.model.kind](recipe, run, console.print)
        return RunFolder(out)
    else:
        with staged_run(out, force=force) as run:
            task = tasks.prepare(recipe, run, console.print)
        run = RunFolder(out)
    torch.set_num_threads(threads or choose_threads(task.recipe, task.target_size))
    _train_to_the_end(task, run, console, device)
    return run


def dry_run(recipe: Recipe, *, console: Console, device: str = "auto", threads: int | None = None) -> None:
    """Reads and encodes the data as training would, says what training will take, and leaves nothing behind."""
    _check_kind(recipe)
    with TemporaryDirectory(prefix="antiphon-") as folder:
        run = RunFolder(Path(folder))
        if recipe.model.kind in _COUNTED:
            _COUNTED[recipe.model.kind](recipe, run, console.print)
            console.print(f"{recipe.model.kind}: learns by counting, in no batches and next to no memory")
            return
        task: Task = _tasks(recipe).prepare(recipe, run, console.print)
        torch.set_num_threads(threads or choose_threads(task.recipe, task.target_size))
        where = choose_device(device)
        console.print(f"{recipe.model.kind}, on {where}:")
        for line in forecast(task.fitting(run, None), where).lines():
            console.print(line, soft_wrap=True)


def _train_to_the_end(task: Task, run: RunFolder, console: Console, device: str) -> None:
    settings = task.recipe.train
    checkpoint = load_checkpoint(run.checkpoint)
    torch.manual_seed(settings.seed)
    fitting = task.fitting(run, checkpoint)
    keeper = Keeper(run, settings.dev_metric, settings.patience, checkpoint)
    parameters = count_parameters(fitting.module.model)
    threads = count_of(torch.get_num_threads(), "thread")
    console.print(f"{task.recipe.model.kind}: {parameters:,} parameters, {threads}")
    run_epochs(fitting, settings, run, keeper, console, device)
    with suppress(InputError):  # no plotting library, no picture: log.csv says the same
        plot_training(keeper.rows, keeper.best, settings.dev_metric, run.plot)
    task.finish(run, choose_device(device))
    seconds = sum(row["seconds"] for row in keeper.rows)
    best = {name: value for name, value in keeper.best.items() if name.startswith("dev_")}
    run.save_metrics(
        {
            "best_epoch": int(keeper.best["epoch"]),
            "epochs": len(keeper.rows),
            **best,
            "parameters": parameters,
            "training_seconds": round(seconds, 1),
            "pairs_per_second": round(sum(row["pairs_per_second"] for row in keeper.rows) / len(keeper.rows), 1),
            "seed": settings.seed,
            "date": date.today().isoformat(),
            "antiphon": __version__,
            "torch": torch.__version__,
        }
    )
    run.checkpoint.unlink(missing_ok=True)
    run.discard_corpus()


def _tasks(recipe: Recipe) -> type[MatchingTask] | type[GenerationTask]:
    return MatchingTask if recipe.model.kind == "matcher" else GenerationTask


def _check_kind(recipe: Recipe) -> None:
    """Refuses what cannot be trained, and a dev metric that the kind cannot have."""
    kind, metric = recipe.model.kind, recipe.train.dev_metric
    if kind == "noisy_channel":
        raise RecipeError("model.kind = noisy_channel: made of trained runs by antiphon combine, expected another kind")
    possible = [] if kind in _COUNTED else ["perplexity"]
    if kind in RANKING_KINDS:
        possible += RANKING_MEASURES
    elif kind != "language_model":
        possible += fitting_measures(recipe.data)
    if metric not in possible:
        raise RecipeError(f"train.dev_metric = {metric}: not for this {kind}, expected {' or '.join(possible)}")


def _refuse_other_settings(stored: Recipe, asked: Recipe, out: Path) -> None:
    before, now = stored.model_dump(mode="json"), asked.model_dump(mode="json")
    for section, values in before.items():
        for name, value in values.items():
            wanted = now[section][name]
            if wanted != value and not (name in ("features", "forget_bias") and wanted is None):
                raise RecipeError(
                    f"{out}: {section}.{name} is {value!r} in the run, expected the same but {wanted!r} was asked for; "
                    "--resume goes on with the settings a run began with"
                )
