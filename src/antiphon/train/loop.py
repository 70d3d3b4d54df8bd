"""The loop over epochs: from the start or from a checkpoint, to the last epoch, the end of patience, or Ctrl-C."""

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import lightning as L
import torch
from rich.console import Console
from torch.utils.data import DataLoader

from antiphon.child_processes import interrupt_status
from antiphon.device import choose_device, keep_freed_memory, let_memory_grow
from antiphon.exceptions import RunError, is_disk_full
from antiphon.recipe.schema import Recipe, TrainSection
from antiphon.runs.run_folder import RunFolder
from antiphon.train.checkpoint import Checkpoint
from antiphon.train.keeper import Keeper
from antiphon.train.length import Length
from antiphon.train.module import EpochBatches, Numbers, TrainingModule
from antiphon.train.progress import ProgressBar
from antiphon.train.schedule import LearningRate, Schedule
from antiphon.train.shares import shared, trainer_options
from antiphon.train.within_memory import is_out_of_memory


class Interrupted(Exception):  # noqa: N818  (nothing went wrong)
    """Training was stopped by Ctrl-C or SIGTERM; the last checkpoint is whole."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Fitting:
    """A model in training with the batches that it learns from and is validated on.

    ``lengths`` are those of both sides of every training pair, and ``sample`` gives a batch of so many pairs, rows and
    columns: by them the largest batch can be planned for without computing it.
    """

    module: TrainingModule
    batches: EpochBatches
    dev_batches: DataLoader[Any]
    lengths: tuple[Numbers, Numbers]
    sample: Callable[[int, int, int], Any]


class Task(Protocol):
    """What is trained: how its data are read, and what belongs to a run once the best weights are known."""

    @property
    def recipe(self) -> Recipe:
        """All settings, those that the data decide too."""
        ...

    @property
    def updates_per_pass(self) -> int:
        """Batches in which all training pairs are seen once."""
        ...

    @property
    def target_size(self) -> int:
        """How many numbers the widest layer puts out, which decides whether threads pay."""
        ...

    def fitting(self, run: RunFolder, checkpoint: Checkpoint | None) -> Fitting:
        """The model as it stands, and its batches."""
        ...

    def finish(self, run: RunFolder, new: RunFolder, device: str) -> Mapping[str, float]:
        """Writes into ``new`` what follows from the best weights of ``run``, computed on a device."""
        ...


def run_epochs(
    fitting: Fitting,
    settings: TrainSection,
    run: RunFolder,
    keeper: Keeper,
    console: Console,
    device: str,
    callbacks: Sequence[L.Callback] = (),
) -> None:
    """Trains for the epochs that are left."""
    length = Length.of(settings)
    epochs_left = length.max_epochs - fitting.module.epochs_before
    if keeper.is_out_of_patience or not epochs_left:
        return
    _quieten_lightning()
    where = choose_device(device)
    keep_freed_memory()
    if where == "cuda":
        let_memory_grow()
    own_batches = shared(fitting.batches)
    trainer = L.Trainer(
        max_epochs=epochs_left,
        accelerator=where,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[
            keeper,
            LearningRate(Schedule.of(settings), own_batches),
            ProgressBar(console, keeper, length.max_epochs, own_batches),
            *callbacks,
        ],
        **trainer_options(where),
    )
    # A loader draws a number when it starts: from its own generator, so that dropout's are left alone.
    batches = DataLoader(own_batches, batch_size=None, generator=torch.Generator())
    try:
        for bound in (fitting.module.memory, fitting.module.dev_memory):
            bound.say = partial(console.print, soft_wrap=True)
        with _products_in(settings.precision), on_disk_errors(run):
            trainer.fit(fitting.module, batches, fitting.dev_batches)
    except SystemExit as stopped:  # this is how Lightning passes Ctrl-C on, and what follows from it
        status = interrupt_status(stopped.__context__)
        raise Interrupted(f"{run.path}: stopped; go on with --resume", status) from stopped
    except RuntimeError as error:
        raise _memory_trouble(error, run) from error


@contextmanager
def _products_in(precision: str) -> Iterator[None]:
    """Inside, a GPU may multiply in TF32 unless more is asked for; what comes after training is as it was before."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest" if precision == "float32" or not torch.cuda.is_available() else "high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def on_disk_errors(run: RunFolder) -> Iterator[None]:
    """Inside, a full disk is answered with what can be done about it."""
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise RunError(
                f"{run.path}: the disk is full; the last checkpoint is whole, make room and go on with --resume"
            ) from error
        raise


def _memory_trouble(error: RuntimeError, run: RunFolder) -> Exception:
    """Memory that ran out where smaller parts of a batch are no help, or where other processes wait for this one."""
    if is_out_of_memory(error):
        return RunError(
            f"{run.path}: out of memory; the last checkpoint is whole, make room and go on with --resume, "
            "or begin anew with a lower train.max_batch_cells or a smaller model"
        )
    return error


def _quieten_lightning() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    for message in (".*does not have many workers.*", ".*`isinstance.treespec, LeafSpec.` is deprecated.*"):
        warnings.filterwarnings("ignore", message)
    warnings.filterwarnings("ignore", category=UserWarning, module="lightning")
