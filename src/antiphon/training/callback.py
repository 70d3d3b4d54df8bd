"""What can be called during training: subclass ``Callback`` and override what is needed."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from torch import nn

from antiphon.terminal import duration
from antiphon.training.state import History

_REFRESH_SECONDS = 0.5


@dataclass(frozen=True)
class UpdateProgress:
    """How far an epoch has come: ``update`` of ``updates`` updates are done; epochs count from 1.

    On a GPU, reading ``loss`` or ``learning_rate`` is a device sync.
    """

    epoch: int
    update: int
    updates: int
    _loss: Callable[[], float] = field(repr=False)
    _learning_rate: Callable[[], float] = field(repr=False)

    @property
    def loss(self) -> float:
        """The mean training loss of the epoch so far."""
        return self._loss()

    @property
    def learning_rate(self) -> float:
        """The learning rate of the update that was just made."""
        return self._learning_rate()


class Callback:
    """Called during training, on rank 0 alone; every method does nothing unless it is overridden."""

    stop_training: bool = False
    """Set to True by a method, it ends training after the epoch; the run is complete, with its best epoch so far."""

    def on_train_begin(self, history: History, max_epochs: int) -> None:
        """Called before the first epoch; ``history`` has the epochs before a resume, and grows during training."""

    def on_update_end(self, progress: UpdateProgress) -> None:
        """Called after each update of the weights."""

    def on_epoch_end(self, epoch: int, metrics: Mapping[str, float], model: nn.Module) -> None:
        """Called after an epoch, counted from 1, is validated and saved.

        ``metrics`` has ``train_loss``, ``dev_...``, ``seconds`` and ``pairs_per_second``. ``model`` has the weights
        that were validated, in evaluation mode.
        """

    def on_train_end(self) -> None:
        """Called when training has ended, also by an error or an interrupt."""


class ProgressBar(Callback):
    """Epochs done, the time that is left, and the training loss; ``lines``: the dev metric after every epoch."""

    def __init__(self, console: Console, *, lines: bool = True) -> None:
        self.console, self.lines = console, lines
        self._refreshed = self._started = time.monotonic()
        self._history, self._max_epochs, self._epochs_before = History("", 0), 0, 0
        self.progress = Progress(
            TextColumn("epoch {task.fields[epoch]}/{task.total:.0f}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.fields[state]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal or console.quiet,
        )
        self.task = TaskID(0)

    def on_train_begin(self, history: History, max_epochs: int) -> None:
        """Shows the bar."""
        self._history, self._max_epochs, self._epochs_before = history, max_epochs, len(history.rows)
        self._started = time.monotonic()
        fields: dict[str, Any] = {"state": "", "left": "", "epoch": self._epochs_before + 1}
        self.task = self.progress.add_task("", total=max_epochs, completed=self._epochs_before, **fields)
        self.progress.start()

    def on_update_end(self, progress: UpdateProgress) -> None:
        """Moves the bar within an epoch, at most twice a second: reading the loss is a device sync."""
        if time.monotonic() - self._refreshed > _REFRESH_SECONDS and not self.progress.disable:
            self._refreshed = time.monotonic()
            self._move(progress.epoch - 1 + progress.update / progress.updates, progress.loss)

    def on_epoch_end(self, epoch: int, metrics: Mapping[str, float], model: nn.Module) -> None:
        """Prints a line about the epoch, and moves the bar to its end."""
        self._move(epoch, metrics["train_loss"])
        if self.lines:
            self.console.print(self._line(metrics), highlight=False, soft_wrap=True)

    def on_train_end(self) -> None:
        """Removes the bar."""
        self.progress.stop()
        self.progress.remove_task(self.task)

    def _move(self, epochs: float, loss: float) -> None:
        """Moves the bar to a number of epochs done; the others are assumed to take as long as those so far."""
        per_epoch = (time.monotonic() - self._started) / max(1e-9, epochs - self._epochs_before)
        self.progress.update(
            self.task,
            completed=epochs,
            epoch=min(int(epochs) + 1, self._max_epochs),
            left=f"{duration(per_epoch * (self._max_epochs - epochs))} left",
            state=f"loss {loss:.3f}",
        )

    def _line(self, row: Mapping[str, float]) -> str:
        metric, best = self._history.metric, self._history.best
        name = f"dev_{metric}"
        is_best = "best" if best["epoch"] == row["epoch"] else f"best {best[name]:.4g} in epoch {best['epoch']:.0f}"
        return (
            f"epoch {row['epoch']:.0f}/{self._max_epochs}  loss {row['train_loss']:.3f}  "
            f"dev {metric.replace('_', ' ')} {row[name]:.4g} ({is_best})  {row['seconds']:.1f} s"
        )
