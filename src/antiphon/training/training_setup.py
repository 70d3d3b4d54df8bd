"""What a task hands to the training loop: model, loss, batches and validation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from torch import nn

from antiphon.recipe.schema import Recipe
from antiphon.runs.run_folder import RunFolder
from antiphon.terminal import Say
from antiphon.training.data.epoch_batches import EpochBatches, Indices
from antiphon.training.step.step import LossFunction
from antiphon.training.training_length import TrainingLength

T = TypeVar("T")


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
        return length.describe(len(self.batches.plan(epoch)), len(self.lengths[0]))


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
    def recipe(self) -> Recipe:
        """All settings, also those that the data decide."""
        ...

    @property
    def updates_per_pass(self) -> int:
        """Number of batches in one pass over the training pairs."""
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
