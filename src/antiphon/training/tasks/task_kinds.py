"""Which task trains which kind of model."""

from collections.abc import Callable
from dataclasses import replace

from antiphon.recipe.schema import Recipe
from antiphon.runs.run_folder import RunFolder
from antiphon.training.length import settle_length
from antiphon.training.reporting import Say
from antiphon.training.tasks.counting import train_overlap, train_suffix_rules
from antiphon.training.tasks.generation_task import GenerationTask
from antiphon.training.tasks.matching_task import MatchingTask
from antiphon.training.training_setup import Task

COUNTED_TASKS: dict[str, Callable[[Recipe, RunFolder, Say], None]] = {
    "suffix_rule": train_suffix_rules,
    "overlap": train_overlap,
}
"""How kinds are trained that learn by counting, without epochs."""


def prepare_task(recipe: Recipe, run: RunFolder, say: Say) -> Task:
    """The task with its data in a new run folder, and its length chosen by the number of pairs where it is unset."""
    task = _task_kind(recipe).prepare(recipe, run, say)
    settled = settle_length(task.recipe, task.updates_per_pass)
    run.save_recipe(settled)
    if settled.train.log == "tensorboard":
        run.tensorboard.mkdir()
    return replace(task, recipe=settled)


def resume_task(recipe: Recipe, run: RunFolder, say: Say) -> GenerationTask | MatchingTask:
    """The task of an existing run folder."""
    return _task_kind(recipe).resume(recipe, run, say)


def _task_kind(recipe: Recipe) -> type[MatchingTask] | type[GenerationTask]:
    return MatchingTask if recipe.model.kind == "matcher" else GenerationTask
