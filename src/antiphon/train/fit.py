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
from antiphon.errors import InputError, RecipeError, RunError, count_of, is_disk_full
from antiphon.kinds import RANKING_KINDS
from antiphon.metrics import why_left_out
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
from antiphon.train.processes import agreed, first_alone, rank, size, size_on_this_machine

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
    run = RunFolder(out)
    task = first_alone(lambda: _begin(recipe, out, console, resume=resume, force=force, device=device))
    if agreed(task is None):
        return run
    task = task or _begin_beside_the_first(recipe, run, console)
    torch.set_num_threads(threads or choose_threads(task.recipe, task.target_size, size_on_this_machine()))
    _train_to_the_end(task, run, console, device)
    return run


def _begin(recipe: Recipe, out: Path, console: Console, *, resume: bool, force: bool, device: str) -> Task | None:
    """What there is to train, its data in the folder ``out``; none if all is done already."""
    _check_kind(recipe)
    _check_device(device)
    tasks = _tasks(recipe)
    if resume and (out / "recipe.toml").exists():
        run = RunFolder.open(out)
        stored = run.recipe()
        _refuse_other_settings(stored, recipe, out)
        if run.metrics():
            console.print(f"{out}: training has ended already, nothing to resume")
            return None
        return tasks.resume(stored, run, console.print)
    try:
        with staged_run(out, force=force) as run:
            if recipe.model.kind in _COUNTED:
                _COUNTED[recipe.model.kind](recipe, run, console.print)
                return None
            return tasks.prepare(recipe, run, console.print)
    except OSError as error:
        if is_disk_full(error):
            raise RunError(f"{out}: the disk is full; nothing is left behind, make room and begin anew") from error
        raise


def _begin_beside_the_first(recipe: Recipe, run: RunFolder, console: Console) -> Task:
    """The task that the first process has prepared."""
    if not run.path.exists():
        raise RunError(f"{run.path}: not seen by process {rank()}, expected a disk that all machines share")
    return _tasks(recipe).resume(run.recipe(), run, console.print)


def _tasks(recipe: Recipe) -> type[MatchingTask] | type[GenerationTask]:
    return MatchingTask if recipe.model.kind == "matcher" else GenerationTask


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
    together = f", {size()} processes" if size() > 1 else ""
    console.print(f"{task.recipe.model.kind}: {parameters:,} parameters, {threads}{together}")
    run_epochs(fitting, settings, run, keeper, console, device)
    first_alone(lambda: _finish(task, run, keeper, parameters, device))


def _finish(task: Task, run: RunFolder, keeper: Keeper, parameters: int, device: str) -> None:
    """Leaves in the run what is known once training has ended, and takes away what was needed for it."""
    settings = task.recipe.train
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
    if missing := why_left_out([metric]):
        raise RecipeError(f"train.dev_metric = {missing}")


def _check_device(name: str) -> None:
    """Refuses a processor that is not there, and more processes than GPUs."""
    gpus = torch.cuda.device_count() if choose_device(name) == "cuda" else None
    if gpus is not None and gpus < size_on_this_machine():
        raise RecipeError(
            f"torchrun: {size_on_this_machine()} processes on a machine with {count_of(gpus, 'GPU')}, expected at most "
            "one process for each, or --device cpu"
        )


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
