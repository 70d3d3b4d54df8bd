"""Sequences of a batch in slots, some of which may be empty."""

from jaxtyping import Int
from torch import Tensor


def scatter_to_slots(
    values: Tensor, slots: Int[Tensor, " N"], size: int, *, empty: float | int = 0, dim: int = 0
) -> Tensor:
    """Values scattered to their slots; unchanged if every slot has one, since they are in order."""
    if values.shape[dim] == size:
        return values
    shape = list(values.shape)
    shape[dim] = size
    return values.new_full(shape, empty).index_copy_(dim, slots, values)
