"""What can be called during training: subclass ``Callback`` and override what is needed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import nn

from antiphon.training.history import History


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
