"""How weights are updated: length of training, learning-rate schedule, optimiser, and the EMA of the weights."""

import math
from dataclasses import dataclass, fields
from math import ceil
from typing import Any, Literal

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import AveragedModel

from antiphon.recipe.sections import TrainSection

DEFAULT_RATE = 0.001
"""The learning rate where ``train.learning_rate`` is unset."""
_LAST_EPOCHS = 2
_LAST_SHARE = 0.05
"""If the best epoch is among the last two, or this last fraction of all epochs, longer training may be better."""


@dataclass(frozen=True)
class TrainingLength:
    """Passes of an epoch, number of epochs, and the epochs without a better dev metric after which training stops."""

    passes: int
    max_epochs: int
    patience: int

    @classmethod
    def of(cls, settings: TrainSection) -> "TrainingLength":
        """The length of a recipe in which it is decided."""
        assert settings.max_epochs is not None
        assert settings.patience is not None
        return cls(settings.passes or 1, settings.max_epochs, settings.patience)


def longer_than(settings: TrainSection, best_epoch: int, epochs: int) -> int | None:
    """A larger number of epochs, by half, if training ended at its last epoch while the model still improved."""
    if settings.max_epochs is None or epochs < settings.max_epochs:
        return None
    is_among_last = epochs - best_epoch < max(_LAST_EPOCHS, _LAST_SHARE * epochs)
    return ceil(1.5 * epochs) if is_among_last else None


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


@dataclass(frozen=True, kw_only=True)
class Optimisation:
    """Settings of the optimiser, of gradient clipping, precision and EMA; an ``ema_decay`` of 0 means no EMA."""

    learning_rate: float
    ema_decay: float
    seed: int
    clip: float
    precision: Literal["float32", "tf32", "bfloat16"]
    optimiser: Literal["adam", "adagrad"]
    l2: float

    @classmethod
    def of(cls, settings: TrainSection, pairs: int) -> "Optimisation":
        """The optimisation that a recipe describes, with ``pairs`` training pairs.

        The L2 penalty of their summed loss is that of a mean loss times ``pairs``.
        """
        given = {field.name: getattr(settings, field.name) for field in fields(cls)}
        given["learning_rate"] = settings.learning_rate or DEFAULT_RATE
        return cls(**given | {"l2": settings.l2 if settings.l2_of == "mean" else settings.l2 / pairs})

    @property
    def bfloat16(self) -> bool:
        """Whether matrices are multiplied in bfloat16."""
        return self.precision == "bfloat16"

    def new_optimiser(self, model: nn.Module) -> torch.optim.Optimizer:
        """The optimiser of a model; ``l2`` adds ``l2 * weight`` to every gradient.

        On a GPU the learning rate is a tensor, which captured steps read.
        """
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if self.optimiser == "adagrad":
            return torch.optim.Adagrad(parameters, lr=self.learning_rate, weight_decay=self.l2)
        on_gpu = parameters[0].is_cuda
        learning_rate = torch.tensor(self.learning_rate, device=parameters[0].device) if on_gpu else self.learning_rate
        return torch.optim.Adam(parameters, learning_rate, weight_decay=self.l2, fused=True, capturable=on_gpu)


def restore_optimiser(optimiser: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Takes the moments of a checkpoint, but keeps the learning-rate tensor and capturability of this device."""
    own = [(group["lr"], group.get("capturable", False)) for group in optimiser.param_groups]
    optimiser.load_state_dict(state)
    for group, (learning_rate, capturable) in zip(optimiser.param_groups, own, strict=True):
        group["lr"], group["capturable"] = learning_rate, capturable


class EMA(AveragedModel):
    """The EMA of a model's weights, with a warm-up: ``average <- d * average + (1 - d) * weights``.

    The first update copies the weights. After it, update ``t = 0, 1, ...`` has ``d = min(decay, (1 + t) / (10 + t))``,
    so that the EMA of a short run does not consist mostly of its first weights.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        super().__init__(model)
        self.requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """Moves the average towards the weights of ``model``.

        PyTorch's own version reads ``n_averaged`` on the host. This one does not: it can be captured in a CUDA graph,
        and every replay counts.
        """
        weight = 1 - (self.n_averaged / (self.n_averaged + 9)).clamp(max=self.decay)
        for average, current in zip(self.module.parameters(), model.parameters(), strict=True):
            average.lerp_(current, weight.to(average.dtype))
        self.n_averaged += 1
