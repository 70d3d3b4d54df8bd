"""Metrics for TensorBoard, in the folder ``tensorboard`` of a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from antiphon.training.callback import Callback, UpdateProgress
from antiphon.training.history import History

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_TAGS = {"train_loss": "train/loss", "seconds": "speed/seconds", "pairs_per_second": "speed/pairs_per_second"}
"""Tags of metrics that are not measured on the dev set."""


class TensorBoardLog(Callback):
    """Writes the metrics and the learning rate of every epoch; the step of TensorBoard is the epoch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writer: SummaryWriter | None = None
        self._learning_rate = 0.0

    def on_train_begin(self, history: History, max_epochs: int) -> None:
        """Opens an event file; events of epochs that are trained again are dropped."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(self.folder), purge_step=len(history.rows) + 1)

    def on_update_end(self, progress: UpdateProgress) -> None:
        """Keeps the learning rate of the last update of an epoch."""
        if progress.update == progress.updates:
            self._learning_rate = progress.learning_rate

    def on_epoch_end(self, epoch: int, metrics: Mapping[str, float], model: nn.Module) -> None:
        """Writes the metrics of an epoch."""
        assert self._writer is not None
        for name, value in metrics.items():
            if name != "epoch":
                self._writer.add_scalar(_TAGS.get(name, name.replace("dev_", "dev/", 1)), value, epoch)
        self._writer.add_scalar("train/learning_rate", self._learning_rate, epoch)
        self._writer.flush()

    def on_train_end(self) -> None:
        """Closes the event file."""
        if self._writer is not None:
            self._writer.close()
