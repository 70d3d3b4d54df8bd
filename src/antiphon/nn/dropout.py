"""Dropout whose random numbers are cheap on a CPU."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Dropout(nn.Dropout):
    """Zeroes each element with probability ``p`` and scales the others up; on a CPU, ``p`` is rounded to 256ths.

    There one random byte decides about each element, an eighth of the cost of a random number. At least one of 256 is
    kept.
    """

    def forward(self, input: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """The input, some elements zeroed while training."""
        dropped = min(255, round(256 * self.p))
        if not self.training or not dropped or input.device.type != "cpu":
            return super().forward(input)
        words = torch.empty(-(-input.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
        kept = words.view(torch.uint8)[: input.numel()].view(input.shape) >= dropped
        return input * kept.to(input.dtype).mul_(256 / (256 - dropped))
