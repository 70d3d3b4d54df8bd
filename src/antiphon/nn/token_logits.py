"""The layer that computes the logits of all tokens."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from antiphon.device import kernels_can_run

_UNIT = 8
"""GPUs multiply and read rows fastest whose length is a multiple of this."""


class TokenLogits(nn.Linear):
    """A linear layer that, while training on a GPU, pads the vocabulary to a multiple of 8 with impossible tokens.

    With a bias their logits are ``-inf``, without one 0: logits are a sum of parts, one of which has the bias.
    """

    def forward(self, input: Float[Tensor, "... H"], *, add_bias: bool = True) -> Float[Tensor, "... V"]:
        """The logits of every token."""
        more = -self.out_features % _UNIT
        bias = self.bias if add_bias else None
        if not more or not self.training or not kernels_can_run(input):
            return linear(input, self.weight, bias)
        padded = None if bias is None else pad(bias, (0, more), value=float("-inf"))
        return linear(input, pad(self.weight, (0, 0, 0, more)), padded)
