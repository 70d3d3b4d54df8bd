"""Pooling: from the states of a text to one vector."""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Pooling = Literal["mean", "cls", "max"]
"""The mean of all states, the first state, or the maximum of each of their elements."""


def pool_states(states: Float[Tensor, "B I D"], valid: Bool[Tensor, "B I"], pooling: Pooling) -> Float[Tensor, "B D"]:
    """The pooled states of each text; ``valid`` is True at its tokens."""
    if pooling == "cls":
        return states[:, 0]
    if pooling == "max":
        return states.masked_fill(~valid[:, :, None], -torch.inf).amax(1)
    return (states * valid[:, :, None]).sum(1) / valid.sum(1, keepdim=True)
