"""All that changes during training, and checkpoints of it: one file of plain tensors and numbers.

A checkpoint is written at the end of each epoch, and every few minutes within one. At the end of an epoch, random
numbers and the order of batches follow from the seed and the next epoch. Within an epoch each process adds the state
of its random number generators and its sum of losses.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor, nn

from antiphon.exceptions import RunError
from antiphon.terminal import Say
from antiphon.training.distributed import all_gather, all_reduce_sum, rank, world_size
from antiphon.training.history import History
from antiphon.training.optimisation import EMA, Optimisation, restore_optimiser
from antiphon.training.step import MicroBatchLimit


class RankState(TypedDict):
    """The state of one process within an epoch: random number generators by device, and its losses so far."""

    random: dict[str, Tensor]
    loss: Tensor
    pairs: int


class Checkpoint(TypedDict):
    """Training after ``epochs`` epochs and ``updates`` updates of the next one, which took ``seconds`` so far.

    ``max_cells`` are the limits of training and validation found after out-of-memory errors. ``ranks`` has an entry for
    each process within an epoch, and none between epochs.
    """

    epochs: int
    updates: int
    seconds: float
    ranks: list[RankState]
    model: dict[str, Any]
    ema: dict[str, Any] | None
    optimiser: dict[str, Any]
    max_cells: list[int | None]
    rows: list[dict[str, float]]
    best: dict[str, float]


def save_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Writes a checkpoint; a full disk is an ``OSError``, as everywhere."""
    try:
        with path.open("wb") as file:
            torch.save(checkpoint, file)
    except RuntimeError as error:  # PyTorch cannot finish a file that could not be written
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def load_checkpoint(path: Path) -> Checkpoint | None:
    """The checkpoint, if there is one; nothing in it is executed."""
    if not path.exists():
        return None
    try:
        checkpoint: Checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise RunError(
            f"{path}: damaged ({type(error).__name__}), expected a checkpoint; --force starts again"
        ) from None
    if not isinstance(checkpoint, dict) or checkpoint.keys() != Checkpoint.__annotations__.keys():
        raise RunError(f"{path}: not a checkpoint of training, expected one; --force starts again")
    return checkpoint


@contextmanager
def refuse_other_shapes(path: Path) -> Iterator[None]:
    """Inside, a checkpoint that does not fit the model is refused."""
    try:
        yield
    except (RuntimeError, KeyError, ValueError, TypeError) as error:
        if not path.exists():
            raise
        raise RunError(
            f"{path}: does not fit the model of this run's recipe ({str(error).splitlines()[0]}), expected the "
            "checkpoint of this run; --force starts again"
        ) from error


class RunningMean:
    """A mean that is copied from the device only when it is read."""

    def __init__(self) -> None:
        self.total: Tensor | float = 0.0
        self.count = 0

    def add(self, total: Tensor, count: int) -> None:
        """Adds the sum of ``count`` values."""
        self.total = self.total + total
        self.count += count

    def all_reduce(self) -> None:
        """Makes it the mean over all processes."""
        if world_size() > 1:
            total, count = all_reduce_sum(float(self.total), self.count)
            self.total, self.count = total, int(count)

    @property
    def value(self) -> float:
        """The mean so far; 0 of nothing."""
        return float(self.total) / max(1, self.count)


@dataclass
class TrainingState:
    """A model in training after ``epoch`` epochs and ``update`` updates of the next one.

    ``seconds`` is how long that epoch had taken at the last checkpoint, and ``resumed`` the state that each process had
    then.
    """

    model: nn.Module
    ema: EMA | None
    optimiser: torch.optim.Optimizer
    limit: MicroBatchLimit
    dev_limit: MicroBatchLimit
    epoch: int = 0
    update: int = 0
    seconds: float = 0.0
    loss: RunningMean = field(default_factory=RunningMean)
    resumed: list[RankState] = field(default_factory=list)

    @classmethod
    def new(cls, model: nn.Module, optimisation: Optimisation, device: torch.device, say: Say) -> "TrainingState":
        """The state before the first update, on a device."""
        model = model.to(device).train()
        ema = EMA(model, optimisation.ema_decay).to(device) if optimisation.ema_decay else None
        return cls(model, ema, optimisation.new_optimiser(model), MicroBatchLimit(say), MicroBatchLimit(say))

    @property
    def evaluated_model(self) -> nn.Module:
        """The model that is validated and saved: the EMA, if there is one."""
        return self.model if self.ema is None else self.ema.module

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def checkpoint(self, history: History, seconds: float = 0.0) -> Checkpoint:
        """All that is needed to resume from here; called by all processes together."""
        return Checkpoint(
            epochs=self.epoch,
            updates=self.update,
            seconds=seconds,
            ranks=all_gather([self._rank_state()]) if self.update else [],
            model=self.model.state_dict(),
            ema=None if self.ema is None else self.ema.state_dict(),
            optimiser=self.optimiser.state_dict(),
            max_cells=[self.limit.max_cells, self.dev_limit.max_cells],
            rows=history.rows,
            best=history.best,
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Goes back to a checkpoint."""
        self.model.load_state_dict(checkpoint["model"])
        if self.ema is not None:
            self.ema.load_state_dict(checkpoint["ema"] or {})
        restore_optimiser(self.optimiser, checkpoint["optimiser"])
        self.limit.max_cells, self.dev_limit.max_cells = checkpoint["max_cells"]
        self.epoch, self.update, self.seconds = checkpoint["epochs"], checkpoint["updates"], checkpoint["seconds"]
        self.resumed = checkpoint["ranks"]

    def start_epoch(self, seed: int) -> None:
        """Seeds the random numbers of the next epoch, or continues those of one that was interrupted.

        With a different number of processes than before, rank r of n takes over the losses of ranks r, r + n, ...
        """
        torch.manual_seed((seed * 1_000_003 + self.epoch + (rank() << 40)) % 2**63)
        self.loss = RunningMean()
        own, self.resumed = self.resumed[rank() :: world_size()], []
        for earlier in own:
            self.loss.add(earlier["loss"].to(self.device), earlier["pairs"])
        if own:
            _set_random_state(own[0]["random"], self.device)

    def finish_epoch(self) -> None:
        """Moves on to the start of the next epoch."""
        self.epoch, self.update, self.seconds = self.epoch + 1, 0, 0.0

    def is_finite(self) -> bool:
        """Whether the loss and all weights are finite; one device sync."""
        weights = [*self.model.parameters(), *(self.ema.parameters() if self.ema is not None else ())]
        finite = torch.stack([weight.isfinite().all() for weight in weights]).all()
        return bool(finite & torch.as_tensor(self.loss.total, device=finite.device).isfinite())

    def _rank_state(self) -> RankState:
        loss = torch.as_tensor(self.loss.total).cpu()
        return RankState(random=_random_state(self.device), loss=loss, pairs=self.loss.count)


def _random_state(device: torch.device) -> dict[str, Tensor]:
    """The state of all random number generators that training uses."""
    on_gpu = {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {}
    return {"cpu": torch.get_rng_state(), **on_gpu}


def _set_random_state(state: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
