"""The learning-rate schedule: a linear warm-up, then half a cosine down to a fraction of the rate."""

import math
from dataclasses import dataclass

import torch
from torch.optim.lr_scheduler import LambdaLR

from antiphon.recipe.schema import TrainSection
from antiphon.training.length import Length


@dataclass(frozen=True)
class Schedule:
    """The learning rate as a function of the update.

    Of ``T`` updates counted from 0, the first ``W = warmup_updates`` rise in equal steps to the full rate. From update
    ``W`` (with no warm-up, 0) to the last, ``T - 1``, the rate is
    ``final + (1 - final) * (1 + cos(pi * (t - W) / (T - 1 - W))) / 2`` of the full one.
    """

    learning_rate: float
    final_learning_rate_ratio: float
    warmup_updates: int
    max_epochs: int

    @classmethod
    def of(cls, settings: TrainSection) -> "Schedule":
        """The schedule of a recipe whose length is decided."""
        max_epochs = Length.of(settings).max_epochs
        return cls(settings.learning_rate, settings.final_learning_rate_ratio, settings.warmup_updates, max_epochs)

    def rate(self, epoch: int, index: int, updates: int) -> float:
        """The rate of update ``index`` of an epoch that has ``updates``; both epoch and index count from 0.

        Epochs differ a little in their number of batches. Each is treated as if all were like itself, so the rate
        follows from the epoch alone, and the last update of all has the final rate.
        """
        update, total = epoch * updates + index, self.max_epochs * updates
        if update < self.warmup_updates:
            return self.learning_rate * (update + 1) / self.warmup_updates
        position = min(1.0, (update - self.warmup_updates) / max(1, total - 1 - self.warmup_updates))
        cosine = 0.5 * (1 + math.cos(math.pi * position))
        return self.learning_rate * (self.final_learning_rate_ratio + (1 - self.final_learning_rate_ratio) * cosine)

    def scheduler(self, optimiser: torch.optim.Optimizer, epoch: int, updates: int, first: int = 0) -> LambdaLR:
        """PyTorch's scheduler for one epoch, which starts with update ``first``."""
        for group in optimiser.param_groups:
            group["initial_lr"] = 1.0  # LambdaLR multiplies by it, and the lambda is the rate itself
        return LambdaLR(optimiser, lambda index: self.rate(epoch, index, updates), last_epoch=first - 1)
