"""The exponential moving average (EMA) of a model's weights."""

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel


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
