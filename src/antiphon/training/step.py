"""One training step: losses, gradients, clipping, optimiser step and EMA.

``cuda_graph_step`` replays the same step as a CUDA graph; ``out_of_memory`` retries its gradients in micro-batches.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from antiphon.training.distributed import average_gradients
from antiphon.training.optimisation import EMA

LossFunction = Callable[[Any, Any], Tensor]
"""The loss of each pair, given a model and a batch."""
Update = Callable[[], Tensor]
"""Updates the weights, once, with gradients that are already computed; returns the sum of the losses."""


class StepResult(NamedTuple):
    """The sum of the losses of a step, still on its device, and the number of pairs."""

    loss: Tensor
    pairs: int


def negative_log_likelihood(model: Any, batch: Any) -> Tensor:
    """``-log p(y | x)`` of each pair."""
    loss: Tensor = -model.log_prob(batch)
    return loss


def smoothed_loss(label_smoothing: float) -> LossFunction:
    """``-log p(y | x)`` of each pair, with label smoothing."""
    return lambda model, batch: -model.log_prob(batch, label_smoothing)


@dataclass(frozen=True)
class Step:
    """One update of a model's weights, and of their EMA."""

    model: nn.Module
    loss: LossFunction
    optimiser: torch.optim.Optimizer
    clip: float
    ema: EMA | None = None
    bfloat16: bool = False
    group: ProcessGroup | None = None

    def __call__(self, batch: Any) -> StepResult:
        """Updates the weights with the mean loss of a batch."""
        pairs = batch.sizes[0]
        return StepResult(self.prepare([batch], 1 / pairs)(), pairs)

    def prepare(self, parts: Sequence[Any], weight: Tensor | float) -> Update:
        """Computes gradients while the weights stay as they are; calling the result updates the weights."""
        loss = self.gradients(parts, weight)

        def update() -> Tensor:
            self.update()
            return loss

        return update

    def gradients(self, parts: Sequence[Any], weight: Tensor | float) -> Tensor:
        """Computes the gradients of a batch given in micro-batches, whose gradients are accumulated.

        Each pair's loss is multiplied by ``weight``. Returns the plain sum of the losses with a weight other than 0.
        """
        self.optimiser.zero_grad()
        return torch.stack([self._backward(part, weight) for part in parts]).sum()

    def update(self) -> None:
        """Clips the gradients, updates the weights once, and then the EMA.

        Never retried: after an error in here the weights may have moved already.
        """
        average_gradients(self.model.parameters(), self.group)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimiser.step()
        if self.ema is not None:
            self.ema.update_parameters(self.model)

    def _backward(self, batch: Any, weight: Tensor | float) -> Tensor:
        losses = self.losses(batch)
        weights = weight if isinstance(weight, Tensor) else losses.new_full((), weight)
        counted = losses.where(weights != 0, 0.0)  # an infinite loss times 0 would be NaN
        (counted * weights).sum().backward()
        return counted.detach().sum()

    def losses(self, batch: Any) -> Tensor:
        """The loss of each pair of a batch."""
        device = batch[0].device.type
        with torch.autocast(device, torch.bfloat16, enabled=self.bfloat16):
            return self.loss(self.model, batch)
