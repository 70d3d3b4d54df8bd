"""A training task: what it hands to the training loop - model, loss, batches and validation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from torch import nn

from antiphon.device import choose_threads
from antiphon.recipe.kinds import KINDS
from antiphon.recipe.schema import Recipe
from antiphon.runs.run_folder import RunFolder
from antiphon.terminal import Say, count_of
from antiphon.training.distributed import BatchShard, local_world_size, shard_indices
from antiphon.training.optimisation import TrainingLength
from antiphon.training.resolution import Facts, Resolution, resolve
from antiphon.training.step import LossFunction

Indices = NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True)
class EpochBatches:
    """The training batches; an epoch is ``passes`` passes over the pairs, each in its own order.

    ``load`` makes a batch of the pairs with these indices, given a random seed for each of them. ``plan_pass`` gives
    the indices of the pairs of every batch of a pass. ``groups`` has the group of every pair, where pairs of a batch
    that are in one group have to be computed by one process.
    """

    load: Callable[[Indices, Indices], Any]
    plan_pass: Callable[[np.random.Generator], list[Indices]]
    seed: int
    passes: int = 1
    groups: Indices | None = None

    def plan(self, epoch: int) -> list[Indices]:
        """The indices of the pairs of every batch of an epoch."""
        order = np.random.default_rng([self.seed, epoch])
        return [indices for _ in range(self.passes) for indices in self.plan_pass(order)]

    def shard(self, epoch: int, index: int, indices: Indices) -> BatchShard:
        """Batch number ``index`` of an epoch, or this process's shard of it; ``indices`` are as in the plan."""
        random = np.random.default_rng([self.seed, epoch, index])
        seeds = random.integers(2**63, size=len(indices))
        own, pairs = shard_indices(indices, self.groups)
        return BatchShard(self.load(indices[own], seeds[own]), pairs, len(indices))


class DevResult(NamedTuple):
    """The mean loss on the dev set, and the metrics.

    ``save_with_weights`` writes what the model needs beside its weights, if anything; called if they are the best.
    """

    loss: float
    metrics: dict[str, float]
    save_with_weights: Callable[[RunFolder], None] | None = None


class InMicroBatches(Protocol):
    """Applies a function to a batch on the device, or to micro-batches of it where memory runs out."""

    def __call__(self, batch: Any, compute: Callable[[Any], T], /) -> list[T]:
        """The result for each micro-batch."""
        ...


@dataclass(frozen=True)
class TrainingSetup:
    """A model, its loss, the batches that it learns from, and its validation.

    ``lengths`` are those of both sides of every training pair, and ``sample`` makes a batch of given pairs, rows
    and columns: memory is estimated with them. ``uses_cuda_graphs`` tells whether steps can be captured on a GPU.
    ``dev_pairs`` is the size of the dev set. ``validate_best`` gives further dev metrics of the best weights, once
    training has ended.
    """

    model: nn.Module
    loss: LossFunction
    batches: EpochBatches
    validate: Callable[[nn.Module, InMicroBatches], DevResult]
    lengths: tuple[Indices, Indices]
    sample: Callable[[int, int, int], Any]
    uses_cuda_graphs: bool = False
    dev_pairs: int = 0
    validate_best: Callable[[nn.Module, InMicroBatches], Mapping[str, float]] | None = None

    def describe_length(self, length: TrainingLength, epoch: int = 0) -> str:
        """The length of training as text, with the number of updates of an epoch."""
        passes = "each a pass" if length.passes == 1 else f"each {length.passes} passes"
        updates, pairs = count_of(len(self.batches.plan(epoch)), "update"), count_of(len(self.lengths[0]), "pair")
        epochs = count_of(length.max_epochs, "epoch")
        return f"{epochs} of {updates} ({passes} over {pairs}), patience {length.patience}"


class Task(Protocol):
    """A training task, a dataclass: it reads data, builds the model, and completes the run once training has ended."""

    @classmethod
    def prepare(cls, recipe: Recipe, run: RunFolder, say: Say) -> "Task":
        """The task with its data in a new run folder."""
        ...

    @classmethod
    def resume(cls, recipe: Recipe, run: RunFolder, say: Say) -> "Task":
        """The task of an existing run folder."""
        ...

    @property
    def settings(self) -> Resolution:
        """All settings, also those that the data decide."""
        ...

    @property
    def facts(self) -> Facts:
        """What the training data are like."""
        ...

    @property
    def target_size(self) -> int:
        """Width of the output layer, which decides whether several threads are faster."""
        ...

    def setup(self, run: RunFolder, *, is_new: bool) -> TrainingSetup:
        """The model with initial weights, and its batches; the weights of a run that is not new are loaded later."""
        ...

    def finish(self, run: RunFolder, new: RunFolder, device: str) -> Mapping[str, float]:
        """Writes into ``new`` what follows from the best weights of ``run``, and returns further dev metrics."""
        ...


def train_by_counting(recipe: Recipe, run: RunFolder, say: Say) -> bool:
    """Trains a kind that learns by counting, without epochs, into the folder; False for other kinds."""
    count = KINDS[recipe.model.kind].count
    if count is not None:
        count()(recipe, run, say)
    return count is not None


def prepare_task(recipe: Recipe, run: RunFolder, say: Say) -> Task:
    """The task with its data in a new run folder, and the recipe with all settings in it."""
    task = _task_of(recipe).prepare(recipe, run, say)
    run.save_recipe(task.settings.recipe)
    if recipe.train.log == "tensorboard":
        run.tensorboard.mkdir()
    return task


def resume_task(recipe: Recipe, run: RunFolder, say: Say) -> Task:
    """The task of an existing run folder."""
    return _task_of(recipe).resume(recipe, run, say)


def choose_threads_of(task: Task, threads: int | None) -> int:
    """The number of threads asked for, or one that suits the model of a task."""
    recipe = task.settings.recipe
    return threads or choose_threads(recipe.train.batch_size, recipe.model.width, task.target_size, local_world_size())


def resolved_again(task: Task) -> Task:
    """The same task with those settings decided that a change of its recipe has left unset."""
    changed: Task = replace(cast(Any, task), settings=resolve(task.settings, task.facts))
    return changed


def _task_of(recipe: Recipe) -> type[Task]:
    task = KINDS[recipe.model.kind].task
    assert task is not None
    return task()
