"""What training will take, without training."""

from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from antiphon.device import choose_device, choose_threads
from antiphon.recipe.schema import Recipe
from antiphon.runs.run_folder import RunFolder
from antiphon.terminal import Say
from antiphon.training.data.data_warnings import warn_about_data
from antiphon.training.optimisation import Optimisation
from antiphon.training.preconditions import check_recipe
from antiphon.training.step.memory_estimate import estimate_memory
from antiphon.training.step.time_estimate import describe_duration, seconds_per_epoch
from antiphon.training.tasks.task_kinds import prepare_task, train_by_counting
from antiphon.training.training_length import TrainingLength


def dry_run(recipe: Recipe, *, say: Say, device: str = "auto", threads: int | None = None) -> None:
    """Reads and encodes the data as training would, reports what training will take, and leaves nothing behind."""
    check_recipe(recipe)
    warn_about_data(recipe, say)
    with TemporaryDirectory(prefix="antiphon-") as folder:
        run = RunFolder(Path(folder))
        if train_by_counting(recipe, run, say):
            say(f"{recipe.model.kind}: learns by counting, without batches and with very little memory")
            return
        task = prepare_task(recipe, run, say)
        torch.set_num_threads(threads or choose_threads(recipe.train.batch_size, recipe.model.width, task.target_size))
        where, settings = choose_device(device), task.recipe.train
        length, optimisation = TrainingLength.of(settings), Optimisation.of(settings)
        say(f"{recipe.model.kind}, on {where}:")
        setup = task.setup(run, is_new=True)
        say(setup.describe_length(length))
        for line in estimate_memory(setup, optimisation, where).lines():
            say(line)
        say(describe_duration(seconds_per_epoch(task.setup(run, is_new=True), optimisation, where), length.max_epochs))
