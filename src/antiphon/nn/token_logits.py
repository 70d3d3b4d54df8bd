"""Layers that compute the logits of all tokens."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from antiphon.triton_support import kernels_can_run

_UNIT = 8
"""GPUs multiply and read rows fastest whose length is a multiple of this."""
_DROPPED_BITS = 13
"""Bits of a single-precision number that TF32 drops."""


class Projection(nn.Linear):
    """A linear layer; in inference on a GPU, tensor cores compute it in single precision.

    A number is the sum of two TF32 numbers, ``x = x1 + x2``, up to the last bits. So ``x2 w1 + x1 w2 + x1 w1`` is one
    TF32 product with three times the inputs, small terms first, in about half of the time without tensor cores.
    """

    _split_weight: tuple[tuple[int, int], Tensor] | None = None

    def forward(self, input: Float[Tensor, "... H"], *, add_bias: bool = True) -> Float[Tensor, "... V"]:
        """The logits of every token."""
        bias = self.bias if add_bias else None
        if torch.is_grad_enabled() or not kernels_can_run(input) or not _is_single(input, self.weight):
            return linear(input, self.weight, bias)
        high, low = _halves(input)
        with _tf32_allowed():
            return linear(torch.cat([low, high, high], -1), self._weight_in_parts(), bias)

    def train(self, mode: bool = True) -> "Projection":
        """Sets the mode and clears the cache: replaying a CUDA graph changes weights but not their version."""
        self._split_weight = None
        return super().train(mode)

    def _weight_in_parts(self) -> Float[Tensor, "V H3"]:
        version = (self.weight.data_ptr(), 0 if self.weight.is_inference() else self.weight._version)
        if self._split_weight is None or self._split_weight[0] != version:
            high, low = _halves(self.weight.detach())
            self._split_weight = version, torch.cat([high, low, high], -1)
        return self._split_weight[1]


class TokenLogits(Projection):
    """A projection that, while training on a GPU, pads the vocabulary to a multiple of 8 with impossible tokens.

    With a bias their logits are ``-inf``, without one 0: logits are a sum of parts, one of which has the bias.
    """

    def forward(self, input: Float[Tensor, "... H"], *, add_bias: bool = True) -> Float[Tensor, "... V"]:
        """The logits of every token."""
        more = -self.out_features % _UNIT
        if not more or not self.training or not kernels_can_run(input):
            return super().forward(input, add_bias=add_bias)
        has_bias = add_bias and self.bias is not None
        bias = pad(self.bias, (0, more), value=float("-inf")) if has_bias else None
        return linear(input, pad(self.weight, (0, 0, 0, more)), bias)


def _is_single(*tensors: Tensor) -> bool:
    """Whether products must be in single precision."""
    single = all(tensor.dtype == torch.float32 for tensor in tensors)
    return single and torch.get_float32_matmul_precision() == "highest" and not torch.is_autocast_enabled()


def _halves(values: Float[Tensor, "..."]) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
    """Each number rounded to TF32, and the remainder."""
    half = 1 << (_DROPPED_BITS - 1)
    high = ((values.view(torch.int32) + half) >> _DROPPED_BITS << _DROPPED_BITS).view(torch.float32)
    return high, values - high


@contextmanager
def _tf32_allowed() -> Iterator[None]:
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")
