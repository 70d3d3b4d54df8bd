"""Forward scores along one row or column of the lattice, for all of its cells at once."""

import torch
from jaxtyping import Float
from torch import Tensor


def forward_along(log_arrive: Float[Tensor, "*M I"], log_move: Float[Tensor, "*M I"]) -> Float[Tensor, "*M I"]:
    """``forward(i) = logaddexp(log_arrive(i), forward(i-1) + log_move(i-1))``.

    ``log_arrive`` is the score of entering the line at a cell, ``log_move`` of moving from a cell to the next. With
    ``S(i)`` the sum of ``log_move`` before ``i``, ``forward(i) = S(i) + log of the sum over r <= i of exp(log_arrive(r)
    - S(r))``. Scores should be doubles: ``S`` may be large.
    """
    moves_before = log_move.cumsum(-1) - log_move
    return moves_before + torch.logcumsumexp(log_arrive - moves_before, -1)
