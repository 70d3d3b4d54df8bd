"""The task that trains a recipe's kind of model, as the registry of kinds names it."""

from dataclasses import replace
from typing import Any, cast

from antiphon.recipe.kinds import KINDS, resolve
from antiphon.recipe.schema import Recipe
from antiphon.runs.run_folder import RunFolder
from antiphon.training.learning_rate import settle_learning_rate
from antiphon.training.length import settle_length
from antiphon.training.reporting import Say
from antiphon.training.training_setup import Task


def count(recipe: Recipe, run: RunFolder, say: Say) -> bool:
    """Whether the recipe's kind learns by counting, without epochs; if so, the trained run is in the folder."""
    kind = KINDS[recipe.model.kind]
    if kind.count is not None:
        resolve(kind.count)(recipe, run, say)
    return kind.count is not None


def prepare_task(recipe: Recipe, run: RunFolder, say: Say) -> Task:
    """The task with its data in a new run folder, and its length chosen by the number of pairs where it is unset."""
    task = _task_kind(recipe).prepare(recipe, run, say)
    settled = settle_length(task.recipe, task.updates_per_pass)
    settled = settle_learning_rate(settled, task.updates_per_pass)
    run.save_recipe(settled)
    if settled.train.log == "tensorboard":
        run.tensorboard.mkdir()
    return with_recipe(task, settled)


def with_recipe(task: Task, recipe: Recipe) -> Task:
    """The same task with other settings."""
    changed: Task = replace(cast(Any, task), recipe=recipe)
    return changed


def resume_task(recipe: Recipe, run: RunFolder, say: Say) -> Task:
    """The task of an existing run folder."""
    return _task_kind(recipe).resume(recipe, run, say)


def _task_kind(recipe: Recipe) -> type[Task]:
    task: type[Task] = resolve(KINDS[recipe.model.kind].task)
    return task
