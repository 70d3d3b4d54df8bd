"""How long epochs take, and the length of training and size of the network that fit into ``train.minutes``.

The time is measured before training: some updates, and a validation. Then the number of epochs is fixed, so that the
learning rate falls in time and a run that is resumed goes on as it began.
"""

import time
from dataclasses import replace
from typing import Any, cast

import torch
from pydantic import ValidationError

from antiphon.recipe.model_sections import ModelSection
from antiphon.runs.run_folder import RunFolder
from antiphon.terminal import Say, duration, silent
from antiphon.training.optimisation import Optimisation, TrainingLength
from antiphon.training.resolution import Resolution, patience_of
from antiphon.training.state import TrainingState
from antiphon.training.step import Step
from antiphon.training.task import Task, TrainingSetup, choose_threads_of

_QUANTILES = 0.1, 0.3, 0.5, 0.7, 0.9
"""Which batches of an epoch are timed, ordered from small to large."""
_MEASURED_SECONDS = 1.0
"""The least time for which updates are measured."""
_FEW_EPOCHS = 0.25
"""A network is made smaller where fewer than this fraction of a recipe's epochs fit into the time."""
_SMALLEST_HIDDEN_SIZE = 128
"""A network is not made smaller than this."""
_SIZES = ("hidden_size", "embedding_size", "feedforward_size")
"""The settings that are halved together, as far as they are set."""
FITTED = ("max_epochs", *_SIZES)
"""Settings of a run that may differ from its recipe's because of ``train.minutes``."""


def fit_to_minutes(task: Task, run: RunFolder, say: Say, device: str, threads: int | None) -> Task:
    """The task with at most as many epochs as ``train.minutes`` allow, and a smaller network where those are few."""
    settings = task.settings.recipe.train
    if settings.minutes is None:
        return task
    length, width = TrainingLength.of(settings), task.settings.recipe.model.width
    while True:
        seconds = _measured_seconds(task, run, device, threads)
        epochs = int(60 * settings.minutes / seconds)
        smaller = _with_half_the_units(task, width) if epochs < _FEW_EPOCHS * length.max_epochs else None
        if smaller is None:
            break
        task = smaller
    if not epochs:
        say(f"train.minutes = {settings.minutes:g}: an epoch takes about {duration(seconds)}, so training takes longer")
    if epochs >= length.max_epochs:
        return task
    return _with_epochs(task, max(1, epochs), f"train.minutes is {settings.minutes:g}, an epoch takes {seconds:.2g} s")


def seconds_per_epoch(setup: TrainingSetup, optimisation: Optimisation, device: str) -> float:
    """About how long the updates of an epoch take: the mean of some, from small batches to large ones.

    The weights move, as they do in training.
    """
    state = TrainingState.new(setup.model, optimisation, torch.device(device), silent)
    step = Step(state.model, setup.loss, state.optimiser, optimisation.clip, state.ema, optimisation.bfloat16)
    plan = setup.batches.plan(0)
    rows, columns = setup.lengths
    plan.sort(key=lambda indices: len(indices) * int(rows[indices].max()) * int(columns[indices].max()))
    some = [
        setup.batches.load(indices, indices).to(device)  # any random seeds do
        for indices in (plan[int(quantile * len(plan))] for quantile in _QUANTILES)
    ]
    step(some[0])  # the first step of all takes longer
    _synchronise(device)
    started, rounds = time.perf_counter(), 0
    while time.perf_counter() - started < _MEASURED_SECONDS:
        for batch in some:
            step(batch)
        _synchronise(device)
        rounds += 1
    return (time.perf_counter() - started) / (rounds * len(some)) * len(plan)


def describe_duration(seconds: float, max_epochs: int) -> str:
    """The time of an epoch and of all epochs as text."""
    epoch = f"{seconds:.1f} s" if seconds < 10 else duration(seconds)
    if max_epochs == 1:
        return f"about {epoch} for one epoch, without validation"
    whole = duration(seconds * max_epochs)
    return f"about {epoch} per epoch, {whole} for all {max_epochs} epochs, without validation"


def _measured_seconds(task: Task, run: RunFolder, device: str, threads: int | None) -> float:
    """About how long an epoch of a task takes, with its validation."""
    torch.set_num_threads(choose_threads_of(task, threads))
    setup = task.setup(run, is_new=True)
    updates = seconds_per_epoch(setup, Optimisation.of(task.settings.recipe.train, setup.pairs), device)
    started = time.perf_counter()
    with torch.inference_mode():
        setup.validate(setup.model.eval(), lambda batch, compute: [compute(batch.to(device))])
    _synchronise(device)
    return updates + time.perf_counter() - started


def _synchronise(device: str) -> None:
    """Waits until a GPU has finished all work."""
    if device == "cuda":
        torch.cuda.synchronize()


def _with_half_the_units(task: Task, asked: int) -> Task | None:
    """The task with a network of half the width instead of the one asked for; None where it is narrow already."""
    recipe, reasons = task.settings.recipe, dict(task.settings.reasons)
    model = _half_as_wide(recipe.model)
    if model is None:
        return None
    reasons["model.hidden_size"] = f"train.minutes is {recipe.train.minutes:g}, too little for {asked}"
    return _with_settings(task, Resolution(recipe.model_copy(update={"model": model}), reasons))


def _half_as_wide(model: ModelSection) -> ModelSection | None:
    if model.width < 2 * _SMALLEST_HIDDEN_SIZE:
        return None
    given = model.model_dump()
    halved = {name: given[name] // 2 for name in _SIZES if given.get(name)}
    try:
        return type(model).model_validate(given | halved)
    except ValidationError:  # heads that do not divide it
        return None


def _with_epochs(task: Task, max_epochs: int, reason: str) -> Task:
    """The task with another number of epochs, and the patience that follows from it unless the recipe sets one."""
    recipe, reasons = task.settings.recipe, {**task.settings.reasons, "train.max_epochs": reason}
    changed: dict[str, Any] = {"max_epochs": max_epochs}
    if "train.patience" in reasons:
        changed["patience"] = patience_of(recipe.train, max_epochs)
    train = recipe.train.model_copy(update=changed)
    return _with_settings(task, Resolution(recipe.model_copy(update={"train": train}), reasons))


def _with_settings(task: Task, settings: Resolution) -> Task:
    """The same task with other settings."""
    changed: Task = replace(cast(Any, task), settings=settings)
    return changed
