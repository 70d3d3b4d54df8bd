"""Training from a recipe to a finished run folder."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import lightning as L
import torch
from rich.console import Console

from antiphon.device import choose_device, choose_threads
from antiphon.exceptions import RecipeError, RunError, count_of
from antiphon.recipe.schema import Recipe
from antiphon.report.plots import optional_picture, plot_training
from antiphon.runs.build import count_parameters
from antiphon.runs.run_folder import RunFolder, claimed, new_run
from antiphon.storage.commit import holds_run
from antiphon.train.checkpoint import load_checkpoint, refuse_other_shapes
from antiphon.train.count import train_overlap, train_suffix_rules
from antiphon.train.generation import GenerationTask
from antiphon.train.keeper import Keeper
from antiphon.train.length import Length, settle_length
from antiphon.train.loop import Fitting, Interrupted, Task, on_disk_errors, run_epochs
from antiphon.train.matching import MatchingTask
from antiphon.train.memory import forecast
from antiphon.train.preconditions import check_recipe
from antiphon.train.processes import agreed, first_alone, rank, size, size_on_this_machine
from antiphon.train.resume import lengthen, refuse_shorter, refuse_stopped, settings_to_resume, stored_recipe
from antiphon.train.speed import describe_duration, seconds_per_epoch
from antiphon.train.summary import save_summary

__all__ = ["Interrupted", "dry_run", "train"]

_COUNTED = {"suffix_rule": train_suffix_rules, "overlap": train_overlap}
"""What trains the kinds that learn by counting."""


def train(
    recipe: Recipe,
    out: Path,
    *,
    console: Console,
    resume: bool = False,
    force: bool = False,
    device: str = "auto",
    threads: int | None = None,
    callbacks: Sequence[L.Callback] = (),
) -> RunFolder:
    """Trains what the recipe describes and leaves it in the folder ``out``; ``callbacks`` are Lightning's."""
    run = RunFolder(out)
    with ExitStack() as held:
        task = first_alone(lambda: _begin(recipe, out, console, held, resume=resume, force=force, device=device))
        if agreed(task is None):
            return run
        task = task or _begin_beside_the_first(recipe, run, console)
        torch.set_num_threads(threads or choose_threads(task.recipe, task.target_size, size_on_this_machine()))
        _train_to_the_end(task, run, console, device, callbacks)
    return run


def _begin(
    recipe: Recipe, out: Path, console: Console, held: ExitStack, *, resume: bool, force: bool, device: str
) -> Task | None:
    """What there is to train, its data in the folder ``out``; none if all is done already.

    ``held`` takes the lock of the folder, which is kept until training ends.
    """
    check_recipe(recipe)
    _check_device(device)
    held.enter_context(claimed(out))
    if resume and holds_run(out):
        return _resume(recipe, out, console)
    with new_run(out, force=force) as run:
        if recipe.model.kind in _COUNTED:
            _COUNTED[recipe.model.kind](recipe, run, console.print)
            return None
        return _prepare(recipe, run, console)


def _prepare(recipe: Recipe, run: RunFolder, console: Console) -> Task:
    """The task with its data in a new run folder, its length chosen by the number of pairs where it was open."""
    task = _tasks(recipe).prepare(recipe, run, console.print)
    settled = settle_length(task.recipe, task.updates_per_pass)
    run.save_recipe(settled)
    return replace(task, recipe=settled)


def _resume(recipe: Recipe, out: Path, console: Console) -> Task | None:
    """What there is left to train of the run in the folder ``out``; none if training has ended."""
    run = RunFolder.open(out)
    stored = stored_recipe(run)
    settings = settings_to_resume(stored, recipe, out)
    if settings == stored:
        if run.metrics():
            console.print(f"{out}: training has ended already, nothing to resume")
            return None
        return _tasks(recipe).resume(stored, run, console.print)
    refuse_stopped(run)
    task = _tasks(recipe).resume(settings, run, console.print)
    settled = settle_length(settings, task.updates_per_pass)
    refuse_shorter(stored, settled, out)
    lengthen(run, settled, console)
    return replace(task, recipe=settled)


def _begin_beside_the_first(recipe: Recipe, run: RunFolder, console: Console) -> Task:
    """The task that the first process has prepared."""
    if not run.path.exists():
        raise RunError(f"{run.path}: not seen by process {rank()}, expected a disk that all machines share")
    return _tasks(recipe).resume(stored_recipe(run), run, console.print)


def _tasks(recipe: Recipe) -> type[MatchingTask] | type[GenerationTask]:
    return MatchingTask if recipe.model.kind == "matcher" else GenerationTask


def dry_run(recipe: Recipe, *, console: Console, device: str = "auto", threads: int | None = None) -> None:
    """Reads and encodes the data as training would, says what training will take, and leaves nothing behind."""
    check_recipe(recipe)
    with TemporaryDirectory(prefix="antiphon-") as folder:
        run = RunFolder(Path(folder))
        if recipe.model.kind in _COUNTED:
            _COUNTED[recipe.model.kind](recipe, run, console.print)
            console.print(f"{recipe.model.kind}: learns by counting, in no batches and next to no memory")
            return
        task = _prepare(recipe, run, console)
        torch.set_num_threads(threads or choose_threads(task.recipe, task.target_size))
        where = choose_device(device)
        console.print(f"{recipe.model.kind}, on {where}:")
        fitting = task.fitting(run, None)
        console.print(_describe_length(task, fitting), soft_wrap=True)
        for line in forecast(fitting, where).lines():
            console.print(line, soft_wrap=True)
        seconds = seconds_per_epoch(task.fitting(run, None), where)
        console.print(describe_duration(seconds, Length.of(task.recipe.train).max_epochs), soft_wrap=True)


def _train_to_the_end(
    task: Task, run: RunFolder, console: Console, device: str, callbacks: Sequence[L.Callback]
) -> None:
    settings = task.recipe.train
    checkpoint = load_checkpoint(run.checkpoint)
    torch.manual_seed(settings.seed)
    with refuse_other_shapes(run.checkpoint):
        fitting = task.fitting(run, checkpoint)
    keeper = Keeper(run, settings.dev_metric, Length.of(settings).patience, checkpoint)
    parameters = count_parameters(fitting.module.model)
    threads = count_of(torch.get_num_threads(), "thread")
    together = f", {size()} processes" if size() > 1 else ""
    console.print(f"{task.recipe.model.kind}: {parameters:,} parameters, {threads}{together}")
    console.print(_describe_length(task, fitting), soft_wrap=True)
    run_epochs(fitting, settings, run, keeper, console, device, callbacks)
    first_alone(lambda: _refuse_no_epoch(run, keeper))
    with on_disk_errors(run):
        first_alone(lambda: _finish(task, run, keeper, parameters, device, console))


def _describe_length(task: Task, fitting: Fitting) -> str:
    updates = len(fitting.batches.plan_epoch(fitting.module.epochs_before))
    return Length.of(task.recipe.train).describe(updates, len(fitting.lengths[0]))


def _finish(task: Task, run: RunFolder, keeper: Keeper, parameters: int, device: str, console: Console) -> None:
    """Leaves in the run what is known once training has ended, and takes away what was needed for it.

    A run that ended at ``train.max_epochs`` keeps its checkpoint, so that it can be made longer.
    """
    settings = task.recipe.train
    is_longest = bool(keeper.problem) or keeper.is_out_of_patience
    with run.changed(remove=(run.corpus.name, *([run.checkpoint.name] if is_longest else []))) as new:
        with optional_picture(run.plot, partial(console.print, soft_wrap=True)):
            plot_training(keeper.rows, keeper.best, settings.dev_metric, new.plot)
        more = task.finish(run, new, choose_device(device))
        _save_summary(task, new, keeper, parameters, more)


def _save_summary(task: Task, new: RunFolder, keeper: Keeper, parameters: int, more: Mapping[str, float]) -> None:
    best = {name.removeprefix("dev_"): value for name, value in keeper.best.items() if name.startswith("dev_")}
    save_summary(
        new,
        task.recipe.train,
        {**best, **more},
        parameters=parameters,
        seconds=sum(row["seconds"] for row in keeper.rows),
        pairs_per_second=sum(row["pairs_per_second"] for row in keeper.rows) / len(keeper.rows),
        best_epoch=int(keeper.best["epoch"]),
        epochs=len(keeper.rows),
        stopped=keeper.problem,
    )


def _refuse_no_epoch(run: RunFolder, keeper: Keeper) -> None:
    """Refuses to call a run trained that has no epoch to keep."""
    if not keeper.rows:
        raise RunError(
            f"{run.path}: {keeper.problem}, and no epoch before it, so nothing was trained; expected finite losses: "
            "lower train.learning_rate and begin anew with --force"
        )


def _check_device(name: str) -> None:
    """Refuses a processor that is not there, and more processes than GPUs."""
    gpus = torch.cuda.device_count() if choose_device(name) == "cuda" else None
    if gpus is not None and gpus < size_on_this_machine():
        raise RecipeError(
            f"torchrun: {size_on_this_machine()} processes on a machine with {count_of(gpus, 'GPU')}, expected at most "
            "one process for each, or --device cpu"
        )
