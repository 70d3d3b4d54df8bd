"""The learning-rate schedule: a linear warm-up, then half a cosine down to a fraction of the rate."""

import math
from dataclasses import dataclass

import torch
from torch.optim.lr_scheduler import LambdaLR

from antiphon.recipe.model_sections import ModelSection
from antiphon.recipe.schema import Recipe, TrainSection
from antiphon.training.training_length import TrainingLength

_MIN_WARMUP, _MAX_WARMUP = 100, 1000
"""Updates of the warm-up of a transformer where ``train.warmup_updates`` is unset: at least, and at most."""
DEFAULT_RATE, _WIDTH = 0.001, 256
"""The learning rate where ``train.learning_rate`` is unset, and the width of a transformer that has it."""


def with_rate_defaults(recipe: Recipe, updates_per_pass: int) -> Recipe:
    """The recipe with defaults for the learning rate and the warm-up; the passes of an epoch are known already."""
    settings = recipe.train
    decided: dict[str, float] = {}
    if settings.learning_rate is None:
        decided["learning_rate"] = _default_rate(recipe.model)
    if settings.warmup_updates is None:
        decided["warmup_updates"] = _default_warmup(recipe.model, (settings.passes or 1) * updates_per_pass)
    return recipe.model_copy(update={"train": settings.model_copy(update=decided)})


def _default_rate(model: ModelSection) -> float:
    """The rate of Adam that is usual; wide transformers need a lower one, narrow ones a higher one."""
    return float(f"{DEFAULT_RATE * math.sqrt(_WIDTH / model.width):.3g}") if model.needs_warmup else DEFAULT_RATE


def _default_warmup(model: ModelSection, updates_per_epoch: int) -> int:
    """Two epochs of a transformer within bounds, whatever the length of training."""
    return min(_MAX_WARMUP, max(_MIN_WARMUP, 2 * updates_per_epoch)) if model.needs_warmup else 0


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
        max_epochs = TrainingLength.of(settings).max_epochs
        rate, warmup_updates = settings.learning_rate or DEFAULT_RATE, settings.warmup_updates or 0
        return cls(rate, settings.final_learning_rate_ratio, warmup_updates, max_epochs)

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
