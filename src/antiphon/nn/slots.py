"""Sequences of a batch in numbered slots, of which some may be empty."""

from jaxtyping import Int
from torch import Tensor

from antiphon.nn.recurrent import LSTMState


def spread(values: Tensor, slots: Int[Tensor, " N"], size: int, *, empty: float = 0, dim: int = 0) -> Tensor:
    """Values put into their slots; if every slot has one, they are in order and come back as they are."""
    if values.shape[dim] == size:
        return values
    shape = list(values.shape)
    shape[dim] = size
    return values.new_full(shape, empty).index_copy_(dim, slots, values)


def spread_states(state: LSTMState, slots: Int[Tensor, " N"], size: int) -> LSTMState:
    """States put into their slots."""
    hidden, cell = state
    return spread(hidden, slots, size, dim=1), spread(cell, slots, size, dim=1)
