"""The shape of the lattice: which moves are possible, and its view as anti-diagonals.

All cells of one anti-diagonal ``d = i + j`` depend only on the diagonal before it, so a sweep over the ``D = I + J``
diagonals handles every sequence of a batch, and every cell of a diagonal, in one vector operation. The grid gets
one more column than there are tokens: the cell at row ``I - 1`` in column ``J`` means that all tokens are written.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

IMPOSSIBLE = float("-inf")


def forbid_impossible_moves(
    log_write: Float[Tensor, "B I J"],
    log_shift: Float[Tensor, "B I J"],
    source_lengths: Int[Tensor, " B"],
    target_lengths: Int[Tensor, " B"],
) -> tuple[Float[Tensor, "B I J"], Float[Tensor, "B I J"]]:
    """Both move scores with ``-inf`` at padding, for shifts out of the last row and for a last token that is too early.

    The last token may be written only in the last row, so that every path has read the whole input.
    """
    rows = torch.arange(log_write.shape[1], device=log_write.device)[None, :, None]
    columns = torch.arange(log_write.shape[2], device=log_write.device)[None, None, :]
    rows_left = source_lengths[:, None, None] - 1 - rows
    columns_left = target_lengths[:, None, None] - 1 - columns
    inside = (rows_left >= 0) & (columns_left >= 0)
    may_write = inside & ((columns_left > 0) | (rows_left == 0))
    may_shift = inside & (rows_left > 0)
    return log_write.masked_fill(~may_write, IMPOSSIBLE), log_shift.masked_fill(~may_shift, IMPOSSIBLE)


def to_diagonals(grid: Float[Tensor, "B I J"]) -> Float[Tensor, "D B I"]:
    """``out[d, b, i] = grid[b, i, d - i]`` with ``D = I + J``, and ``-inf`` where ``d - i`` is not a column.

    Rows padded to width ``D + 1`` and read with width ``D`` shift right by one position per row.
    """
    B, I, J = grid.shape
    D = I + J
    padded = pad(grid, (0, I + 1), value=IMPOSSIBLE).reshape(B, I * (D + 1))
    return padded[:, : I * D].reshape(B, I, D).permute(2, 0, 1).contiguous()


def from_diagonals(diagonals: Float[Tensor, "D B I"]) -> Float[Tensor, "B I J"]:
    """The inverse of ``to_diagonals``."""
    D, B, I = diagonals.shape
    flat = diagonals.permute(1, 2, 0).reshape(B, I * D)
    return pad(flat, (0, I), value=IMPOSSIBLE).reshape(B, I, D + 1)[:, :, : D - I]


def end_cells(
    source_lengths: Int[Tensor, " B"], target_lengths: Int[Tensor, " B"]
) -> tuple[Int[Tensor, " B"], Int[Tensor, " B"]]:
    """Diagonal and row of the end cell of each sequence."""
    return source_lengths + target_lengths - 1, source_lengths - 1
