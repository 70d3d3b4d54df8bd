"""The layer that gives every word its logit."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from antiphon.kernels import kernels_can_run

_UNIT = 8
"""A GPU multiplies and reads rows fastest whose length this divides."""


class WordLogits(nn.Linear):
    """A linear layer; while a model learns on a GPU, words that cannot be follow the others up to a round number.

    With a bias their logits are ``-inf``, without one 0: of the parts of a sum, one has the bias.
    """

    def forward(self, input: Float[Tensor, "... H"]) -> Float[Tensor, "... V"]:
        """The logits of every word."""
        more = -self.out_features % _UNIT
        if not more or not self.training or not kernels_can_run(input):
            return super().forward(input)
        bias = None if self.bias is None else pad(self.bias, (0, more), value=float("-inf"))
        return linear(input, pad(self.weight, (0, 0, 0, more)), bias)
