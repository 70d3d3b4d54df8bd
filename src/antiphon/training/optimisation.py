"""The optimiser and its settings."""

from dataclasses import dataclass, fields
from typing import Any, Literal

import torch
from torch import nn

from antiphon.recipe.schema import TrainSection
from antiphon.training.learning_rate import DEFAULT_RATE


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
    def of(cls, settings: TrainSection) -> "Optimisation":
        """The optimisation that a recipe describes."""
        given = {field.name: getattr(settings, field.name) for field in fields(cls)}
        return cls(**given | {"learning_rate": settings.learning_rate or DEFAULT_RATE})

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
