"""The learning rate of every update: a linear warm-up, then half a cosine down to a fraction of it."""

import math
from dataclasses import dataclass
from typing import Any

import lightning as L

from antiphon.recipe.schema import TrainSection
from antiphon.train.length import Length
from antiphon.train.module import EpochBatches, TrainingModule
from antiphon.train.step import set_learning_rate


@dataclass(frozen=True)
class Schedule:
    """The learning rate as a function of the update.

    Of ``T`` updates counted from 0, the first ``W = warmup_updates`` rise in equal steps to the full rate. From update
    ``W`` (with no warm-up, 0) to the last, ``T - 1``, the rate is
    ``final + (1 - final) * (1 + cos(pi * (t - W) / (T - 1 - W))) / 2`` of the full one.
    """

    learning_rate: float
    final_learning_rate: float
    warmup_updates: int
    max_epochs: int

    @classmethod
    def of(cls, settings: TrainSection) -> "Schedule":
        """The schedule of a recipe whose length is decided."""
        max_epochs = Length.of(settings).max_epochs
        return cls(settings.learning_rate, settings.final_learning_rate, settings.warmup_updates, max_epochs)

    def rate(self, epoch: int, index: int, updates: int) -> float:
        """The rate of update ``index`` of an epoch that has ``updates``; both epoch and index count from 0.

        Epochs differ a little in their number of batches: each counts as if all were like itself, so that the rate
        follows from the epoch alone, and the last update of all has the final rate.
        """
        update, total = epoch * updates + index, self.max_epochs * updates
        if update < self.warmup_updates:
            return self.learning_rate * (update + 1) / self.warmup_updates
        way = min(1.0, (update - self.warmup_updates) / max(1, total - 1 - self.warmup_updates))
        share = self.final_learning_rate + (1 - self.final_learning_rate) * 0.5 * (1 + math.cos(math.pi * way))
        return self.learning_rate * share


class LearningRate(L.Callback):
    """Sets the learning rate before every update; a rate that stays as it is costs nothing."""

    def __init__(self, schedule: Schedule, batches: EpochBatches) -> None:
        self.schedule, self.batches = schedule, batches
        self._current: float | None = None

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Sets the rate of the update that comes next."""
        assert isinstance(pl_module, TrainingModule)
        rate = self.schedule.rate(pl_module.epoch, batch_idx, self.batches.planned)
        if rate != self._current:
            set_learning_rate(pl_module.optimizer, rate)
            self._current = rate
