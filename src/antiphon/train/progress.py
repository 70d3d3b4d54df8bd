"""A progress bar for people, and plain lines where no terminal is watching."""

import time
from typing import Any

import lightning as L
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from antiphon.train.keeper import Keeper
from antiphon.train.module import TrainingModule

_SECONDS_BETWEEN_MOVES = 0.5


class ProgressBar(L.Callback):
    """Epochs done, running loss, the last dev metric and the best one."""

    def __init__(self, console: Console, keeper: Keeper, max_epochs: int) -> None:
        self.console, self.keeper, self.max_epochs = console, keeper, max_epochs
        self.batches_before, self._moved = 0, 0.0
        self.progress = Progress(
            TextColumn("[bold]training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("epochs  {task.fields[state]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal or console.quiet,
        )
        self.task = TaskID(0)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Shows the bar."""
        self.task = self.progress.add_task("", total=self.max_epochs, completed=_epoch(pl_module), state="")
        self.progress.start()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Moves the bar inside an epoch, now and then: to know the loss is to wait for a GPU."""
        if time.monotonic() - self._moved > _SECONDS_BETWEEN_MOVES and not self.progress.disable:
            self._moved = time.monotonic()
            share = min(0.99, batch_idx / self.batches_before) if self.batches_before else 0.0
            self.progress.update(self.task, completed=_epoch(pl_module) + share, state=self._state(pl_module))

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Moves the bar to the end of the epoch; without a terminal, writes a line."""
        self.batches_before = trainer.fit_loop.epoch_loop.batch_progress.current.completed
        epoch = _epoch(pl_module) + 1
        self.progress.update(self.task, completed=epoch, state=self._state(pl_module))
        if self.progress.disable:
            self.console.print(f"epoch {epoch}/{self.max_epochs}  {self._state(pl_module)}")

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Takes the bar away."""
        self.progress.stop()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Takes the bar away, whatever happened."""
        self.progress.stop()

    def _state(self, module: L.LightningModule) -> str:
        assert isinstance(module, TrainingModule)
        text = f"loss {module.train_loss.value:.3f}"
        if self.keeper.rows:
            metric, last, best = self.keeper.metric, self.keeper.rows[-1], self.keeper.best
            name = f"dev_{metric}"
            text += f"  dev {metric} {last[name]:.4g}  best {best[name]:.4g} (epoch {best['epoch']:.0f})"
        return text


def _epoch(module: L.LightningModule) -> int:
    assert isinstance(module, TrainingModule)
    return module.epoch
