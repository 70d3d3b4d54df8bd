"""Training from a recipe to a finished run folder, and what it would take."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from antiphon.device import choose_device
from antiphon.exceptions import RecipeError, RunError
from antiphon.recipe.kinds import KINDS
from antiphon.recipe.recipe_file import with_moved_paths
from antiphon.recipe.schema import Recipe
from antiphon.recipe.sections import TrainSection
from antiphon.report.plots import optional_picture, plot_training
from antiphon.runs.build import count_parameters
from antiphon.runs.run_folder import RunFolder, locked_folder, publish, waiting_run
from antiphon.storage.files import final_location, refuse_links_and_folders
from antiphon.storage.manifest import REPORTS, holds_run, recover, seal_run
from antiphon.terminal import Say, count_of, silent
from antiphon.training.callback import Callback
from antiphon.training.checks import check_recipe, warn_about_data
from antiphon.training.distributed import (
    broadcast,
    is_rank_zero,
    local_device,
    local_world_size,
    on_rank_zero,
    rank,
    world_size,
)
from antiphon.training.loop import TrainingLoop
from antiphon.training.optimisation import Optimisation, TrainingLength
from antiphon.training.resolution import Resolution, patience_of
from antiphon.training.state import History, TrainingState, load_checkpoint, refuse_other_shapes
from antiphon.training.task import Task, TrainingSetup, choose_threads_of, prepare_task, resume_task, train_by_counting
from antiphon.training.time_limit import FITTED, describe_duration, fit_to_minutes, seconds_per_epoch


def train(
    recipe: Recipe,
    out: Path,
    *,
    say: Say = silent,
    resume: bool = False,
    force: bool = False,
    device: str = "auto",
    threads: int | None = None,
    callbacks: Sequence[Callback] = (),
    wait: bool = False,
) -> RunFolder:
    """Trains what the recipe describes and returns the run folder ``out``; ``say`` is given lines about progress.

    If another process writes into the folder, that is an error, or with ``wait`` waited for.
    """
    say = say if is_rank_zero() else silent
    options = _StartOptions(resume, force, wait, device, threads)
    with ExitStack() as held:
        started = on_rank_zero(lambda: _begin(recipe, out, say, held, options))
        if broadcast(started is None):
            return RunFolder(out)
        run = RunFolder(broadcast(out if started is None else started.run.path))
        task = started.task if started is not None else _begin_on_other_ranks(recipe, run, say)
        where = local_device(choose_device(device))
        with _own_threads_and_random_numbers(choose_threads_of(task, threads), where):
            _run_to_the_end(task, run, out, say, where, callbacks if is_rank_zero() else ())
    return RunFolder(out)


class _StartOptions(NamedTuple):
    """How a training begins."""

    resume: bool
    force: bool
    wait: bool
    device: str
    threads: int | None


class _Started(NamedTuple):
    """A task, and the run folder with its data: an old run keeps its place until the new one has weights."""

    task: Task
    run: RunFolder


def _begin(recipe: Recipe, out: Path, say: Say, held: ExitStack, options: _StartOptions) -> _Started | None:
    """The task, with its data in the folder ``out``; None if nothing is left to do.

    ``held`` takes the lock of the folder, which is kept until training ends.
    """
    check_recipe(recipe)
    _check_device(options.device)
    held.enter_context(locked_folder(out, wait=options.wait))
    if options.resume and holds_run(out):
        return _resume(recipe, out, say)
    run = held.enter_context(waiting_run(out, force=options.force))
    warn_about_data(recipe, say)
    if train_by_counting(recipe, run, say):
        publish(run, out)
        return None
    task = _fit_to_minutes(prepare_task(recipe, run, say), run, say, options)
    if not holds_run(out):  # with --resume, training then continues from its first checkpoint
        return _Started(task, publish(run, out))
    seal_run(run.path)
    return _Started(task, run)


def _fit_to_minutes(task: Task, run: RunFolder, say: Say, options: _StartOptions) -> Task:
    """The task with a length that fits ``train.minutes``, if that is set; the recipe of its run records it."""
    if task.settings.recipe.train.minutes is None:
        return task
    where = local_device(choose_device(options.device))
    with _own_threads_and_random_numbers(choose_threads_of(task, options.threads), where):
        fitted = fit_to_minutes(task, run, say, where.type, options.threads)
    run.save_recipe(fitted.settings.recipe)
    return fitted


def _resume(recipe: Recipe, out: Path, say: Say) -> _Started | None:
    """The task of the run in the folder ``out``; None if training has ended."""
    run = RunFolder.open(out, checkpoint=True)
    refuse_links_and_folders(out, REPORTS)  # which training writes, and nothing has verified
    stored = with_moved_paths(run.recipe(), recipe)
    settings = settings_to_resume(stored, recipe, out)
    if run.metrics() and (settings == stored or is_shorter(settings, stored)):
        recover(out)
        say(f"{out}: training has ended already, nothing to resume")
        return None
    if KINDS[stored.model.kind].task is None:
        raise RunError(
            f"{out / 'metrics.json'}: missing, expected it in a run of kind {stored.model.kind}; use --force"
        )
    if settings != stored:
        refuse_stopped(run)
    load_checkpoint(run.checkpoint)  # a damaged one is refused before anything is written
    if settings != stored:
        with torch.random.fork_rng(devices=[]):  # and so is one of another model
            _restore(resume_task(settings, run, silent), run, torch.device("cpu"), silent)
    recover(out)
    run = RunFolder(out)
    if settings == stored:
        return _Started(resume_task(stored, run, say), run)
    change_length(run, stored, settings, say)
    return _Started(resume_task(settings, run, say), run)


def _begin_on_other_ranks(recipe: Recipe, run: RunFolder, say: Say) -> Task:
    """The task that rank 0 has prepared."""
    if not run.path.exists():
        raise RunError(
            f"{run.path}: not found by the process of rank {rank()}, expected a disk that all machines share"
        )
    return resume_task(with_moved_paths(run.recipe(), recipe), run, say)


@contextmanager
def _own_threads_and_random_numbers(threads: int, device: torch.device) -> Iterator[None]:
    """Inside, PyTorch uses this many threads; afterwards the number of threads and the random state are restored."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield
    finally:
        torch.set_num_threads(before)


def _run_to_the_end(
    task: Task, run: RunFolder, out: Path, say: Say, device: torch.device, callbacks: Sequence[Callback]
) -> None:
    """Trains all epochs that are left, and finishes the run in ``out``."""
    loop = TrainingLoop(*_restore(task, run, device, say), run, task.settings.recipe.train, callbacks, out)
    parameters = count_parameters(loop.state.model)
    threads = count_of(torch.get_num_threads(), "thread")
    processes = f", {world_size()} processes" if world_size() > 1 else ""
    say(f"{task.settings.recipe.model.kind}: {parameters:,} parameters, {threads}{processes}")
    say(loop.setup.describe_length(TrainingLength.of(task.settings.recipe.train), loop.state.epoch))
    loop.run()
    with loop.explained_errors():
        more = loop.validate_best()
        on_rank_zero(lambda: _finish(task, loop.run_folder, loop.history, parameters, more, device.type, say))


def _restore(
    task: Task, run: RunFolder, device: torch.device, say: Say
) -> tuple[TrainingSetup, TrainingState, History]:
    """What a task trains, at the checkpoint of its run if there is one."""
    settings = task.settings.recipe.train
    checkpoint = load_checkpoint(run.checkpoint)
    torch.manual_seed(settings.seed)
    with refuse_other_shapes(run.checkpoint):
        setup = task.setup(run, is_new=checkpoint is None)
        prefers_later = settings.final_learning_rate_ratio < 1
        length = TrainingLength.of(settings)
        history = History(settings.dev_metric, length.patience, setup.dev_pairs if prefers_later else 0)
        state = TrainingState.new(setup.model, Optimisation.of(settings, setup.pairs), device, say)
        if checkpoint is not None:
            state.restore(checkpoint)
            history.rows, history.best = checkpoint["rows"], checkpoint["best"]
    return setup, state, history


def _finish(
    task: Task, run: RunFolder, history: History, parameters: int, more: Mapping[str, float], device: str, say: Say
) -> None:
    """Adds to the run what is known once training has ended, and removes what was needed only for training.

    A run that ended at ``train.max_epochs`` keeps its checkpoint, so that it can be made longer.
    """
    _refuse_no_epoch(run, history)
    stopped_early = bool(history.problem) or history.has_converged
    with run.changed(remove=[run.checkpoint.name] if stopped_early else []) as new:
        with optional_picture(run.plot, say):
            plot_training(history.rows, history.best, history.metric, new.plot)
        more = {**more, **task.finish(run, new, device)}
        history.summary(parameters, more).save(new, task.settings.recipe.train.seed)


def _refuse_no_epoch(run: RunFolder, history: History) -> None:
    """Refuses to call a run trained that has no epoch to save."""
    if not history.rows:
        raise RunError(
            f"{final_location(run.path)}: {history.problem}, and no epoch before it, so nothing was trained; expected "
            "finite losses: lower train.learning_rate and start again with --force"
        )


def _check_device(name: str) -> None:
    """Refuses a device that does not exist, and more processes than GPUs."""
    gpus = torch.cuda.device_count() if choose_device(name) == "cuda" else None
    if gpus is not None and gpus < local_world_size():
        raise RecipeError(
            f"torchrun: {local_world_size()} processes on a machine with {count_of(gpus, 'GPU')}, expected at most "
            "one process for each, or --device cpu"
        )


def settings_to_resume(stored: Recipe, asked: Recipe, out: Path) -> Recipe:
    """The settings of a run, with another number of epochs if asked for; other changes are refused by name.

    What is unset now, or was fitted to the same ``train.minutes``, is as it was when the run started. Patience that
    follows from the number of epochs is that of the new one.
    """
    before, now = stored.model_dump(mode="json"), asked.model_dump(mode="json")
    fitted = FITTED if asked.train.minutes is not None and asked.train.minutes == stored.train.minutes else ()
    if KINDS[stored.model.kind].task is not None and not fitted:
        before["train"] |= _other_length(stored.train, asked.train)
    for section, values in before.items():
        for name, value in values.items():
            wanted = now[section].get(name)
            if wanted is not None and wanted != value and name not in fitted:
                raise RecipeError(
                    f"{out}: {section}.{name} is {value!r} in the run, expected the same but {wanted!r} was asked for; "
                    "only train.max_epochs may change; give the same settings, or use "
                    f"{out / 'recipe.toml'} as the recipe, which has all settings of the run"
                )
    return Recipe.model_validate(before)


def is_shorter(recipe: Recipe, stored: Recipe) -> bool:
    """Whether a recipe asks for fewer epochs than a run has in its own."""
    wanted, had = recipe.train.max_epochs, stored.train.max_epochs
    return wanted is not None and had is not None and wanted < had


def change_length(run: RunFolder, stored: Recipe, recipe: Recipe, say: Say) -> None:
    """Gives a run another number of epochs; it counts as untrained until they are done."""
    with run.changed(remove=("metrics.json",)) as new:
        new.save_recipe(recipe)
    if is_shorter(recipe, stored):
        say(f"train.max_epochs: {recipe.train.max_epochs} instead of the {stored.train.max_epochs} of the run")
    elif recipe.train.final_learning_rate_ratio != 1:
        say("train.final_learning_rate_ratio: the learning rate now falls over all epochs, old and new")


def refuse_stopped(run: RunFolder) -> None:
    """Refuses more epochs for a run that stopped before its last epoch."""
    if run.metrics() and not run.checkpoint.exists():
        raise RunError(
            f"{run.path}: training ended before train.max_epochs, so more epochs would change nothing; "
            "start again with --force, or choose another --out"
        )


def _other_length(stored: TrainSection, asked: TrainSection) -> dict[str, Any]:
    """The number of epochs asked for where it differs from that of a run, and the patience that follows from it."""
    epochs = asked.max_epochs
    if epochs is None or epochs == stored.max_epochs:
        return {}
    follows = asked.patience is None and stored.patience == patience_of(stored, stored.max_epochs or 0)
    return {"max_epochs": epochs} | ({"patience": patience_of(stored, epochs)} if follows else {})


def dry_run(recipe: Recipe, *, say: Say, device: str = "auto", threads: int | None = None) -> None:
    """Reads and encodes the data as training would, reports what training will take, and leaves nothing behind."""
    check_recipe(recipe)
    warn_about_data(recipe, say)
    with TemporaryDirectory(prefix="antiphon-") as folder:
        run = RunFolder(Path(folder))
        if train_by_counting(recipe, run, say):
            say(f"{recipe.model.kind}: learns by counting, without batches and with very little memory")
            return
        where = choose_device(device)
        task = fit_to_minutes(prepare_task(recipe, run, say), run, say, where, threads)
        _say_settings(task.settings, say)
        torch.set_num_threads(choose_threads_of(task, threads))
        settings, setup = task.settings.recipe.train, task.setup(run, is_new=True)
        length, optimisation = TrainingLength.of(settings), Optimisation.of(settings, setup.pairs)
        say(f"{recipe.model.kind}, on {where}:")
        say(setup.describe_length(length))
        say(f"{count_parameters(setup.model):,} parameters")
        say(describe_duration(seconds_per_epoch(setup, optimisation, where), length.max_epochs))


def _say_settings(settings: Resolution, say: Say) -> None:
    """Shows the settings that the recipe leaves unset, their values, and why they were chosen."""
    if settings.reasons:
        say("settings that the recipe leaves unset:")
    for line in settings.table():
        say(f"  {line}")
