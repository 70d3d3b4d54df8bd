"""What every network offers that is trained on pairs: the log probability of each target."""

from typing import Protocol, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from antiphon.data.batch import Batch


class SequenceModel(Protocol):
    """A network that scores pairs."""

    def log_prob(self, batch: Batch) -> Tensor:
        """``log p(y | x)`` of each pair."""
        ...


@torch.inference_mode()
def log_prob(model: nn.Module, batch: Batch) -> Float[Tensor, " B"]:
    """The log probability of each target, without a gradient."""
    return cast(SequenceModel, model).log_prob(batch)
