"""A progress bar for people; every epoch leaves a line, with or without a terminal."""

import time
from typing import Any

import lightning as L
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from antiphon.terminal import duration
from antiphon.train.keeper import Keeper
from antiphon.train.module import EpochBatches, TrainingModule

_SECONDS_BETWEEN_MOVES = 0.5


class ProgressBar(L.Callback):
    """Epochs done, the time that is left, and the running loss; a line with the dev metric after every epoch."""

    def __init__(self, console: Console, keeper: Keeper, max_epochs: int, batches: EpochBatches) -> None:
        self.console, self.keeper, self.max_epochs, self.batches = console, keeper, max_epochs, batches
        self._moved = self._started = time.monotonic()
        self._epochs_before = 0
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

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Shows the bar."""
        self._started, self._epochs_before = time.monotonic(), _epoch(pl_module)
        fields: dict[str, Any] = {"state": "", "left": "", "epoch": self._epochs_before + 1}
        self.task = self.progress.add_task("", total=self.max_epochs, completed=self._epochs_before, **fields)
        self.progress.start()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Moves the bar inside an epoch, now and then: to know the loss is to wait for a GPU."""
        if time.monotonic() - self._moved > _SECONDS_BETWEEN_MOVES and not self.progress.disable:
            self._moved = time.monotonic()
            self._move(pl_module, min(1.0, (batch_idx + 1) / max(1, self.batches.planned)))

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Leaves a line that says how the epoch went, and moves the bar to its end."""
        self._move(pl_module, 1.0)
        if self.keeper.rows:
            self.console.print(self._line(self.keeper.rows[-1]), highlight=False, soft_wrap=True)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Takes the bar away."""
        self.progress.stop()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Takes the bar away, whatever happened."""
        self.progress.stop()

    def _move(self, module: L.LightningModule, share: float) -> None:
        """Moves the bar into the current epoch; the time left is as long for an epoch as it was so far."""
        assert isinstance(module, TrainingModule)
        done = module.epoch + share
        per_epoch = (time.monotonic() - self._started) / max(1e-9, done - self._epochs_before)
        self.progress.update(
            self.task,
            completed=done,
            epoch=min(module.epoch + 1, self.max_epochs),
            left=f"{duration(per_epoch * (self.max_epochs - done))} left",
            state=f"loss {module.train_loss.value:.3f}",
        )

    def _line(self, row: dict[str, float]) -> str:
        metric, best = self.keeper.metric, self.keeper.best
        name = f"dev_{metric}"
        is_best = "best" if best["epoch"] == row["epoch"] else f"best {best[name]:.4g} in epoch {best['epoch']:.0f}"
        return (
            f"epoch {row['epoch']:.0f}/{self.max_epochs}  loss {row['train_loss']:.3f}  "
            f"dev {metric.replace('_', ' ')} {row[name]:.4g} ({is_best})  {row['seconds']:.1f} s"
        )


def _epoch(module: L.LightningModule) -> int:
    assert isinstance(module, TrainingModule)
    return module.epoch
