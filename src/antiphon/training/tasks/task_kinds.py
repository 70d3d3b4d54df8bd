"""The task that trains a recipe's kind of model, as the registry of kinds names it."""

from dataclasses import replace
from typing import Any, cast

from antiphon.recipe.kinds import KINDS, resolve
from antiphon.recipe.schema import Recipe
from antiphon.runs.run_folder import RunFolder
from antiphon.terminal import Say
from antiphon.training.learning_rate import with_rate_defaults
from antiphon.training.training_length import with_length_defaults
from antiphon.training.training_setup import Task


def train_by_counting(recipe: Recipe, run: RunFolder, say: Say) -> bool:
    """Trains a kind that learns by counting, without epochs, into the folder; False for other kinds."""
    kind = KINDS[recipe.model.kind]
    if kind.count is not None:
        resolve(kind.count)(recipe, run, say)
    return kind.count is not None


def prepare_task(recipe: Recipe, run: RunFolder, say: Say) -> Task:
    """The task with its data in a new run folder, and its length chosen by the number of pairs where it is unset."""
    task = _task_kind(recipe).prepare(recipe, run, say)
    recipe = with_rate_defaults(with_length_defaults(task.recipe, task.updates_per_pass), task.updates_per_pass)
    run.save_recipe(recipe)
    if recipe.train.log == "tensorboard":
        run.tensorboard.mkdir()
    return with_recipe(task, recipe)


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
