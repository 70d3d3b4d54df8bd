"""The two moves of the lattice: their scores, which of them are possible, and the lattice as anti-diagonals.

All cells of one anti-diagonal ``d = i + j`` depend only on the diagonal before it, so a sweep over the ``D = I + J``
diagonals handles every sequence of a batch, and every cell of a diagonal, in one vector operation. The grid gets
one more column than there are tokens: the cell at row ``I - 1`` in column ``J`` means that all tokens are written.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

IMPOSSIBLE = float("-inf")
INTEGERS = torch.int32, torch.int64
"""Types of lengths and token ids."""


class Moves(NamedTuple):
    """Log scores of the two moves in every cell."""

    log_write: Float[Tensor, "B I J"]
    log_read: Float[Tensor, "B I J"]


def moves_of_cells(
    log_token: Float[Tensor, "B I J"],
    emit_log_odds: Float[Tensor, "B I J"],
    source_lengths: Int[Tensor, " B"],
    *,
    final_write_forced: bool,
) -> Moves:
    """``write = emit * token`` and ``read = 1 - emit``; if forced, ``emit = 1`` in the last row of each sequence."""
    rows = torch.arange(log_token.shape[1], device=log_token.device)
    in_last_row = rows[:, None] == source_lengths[:, None, None] - 1
    log_emit, log_read = split_odds(emit_log_odds, in_last_row if final_write_forced else None)
    return Moves(log_emit + log_token, log_read)


def split_odds(
    log_odds: Float[Tensor, "*cells"], forced: Bool[Tensor, "..."] | None
) -> tuple[Float[Tensor, "*cells"], Float[Tensor, "*cells"]]:
    """Log probabilities of ``emit`` and ``1 - emit``; emit is certain where it is forced."""
    log_emit, log_read = logsigmoid(log_odds), logsigmoid(-log_odds)
    return log_emit if forced is None else log_emit.masked_fill(forced, 0.0), log_read


def checked_moves(log_write: Tensor, log_read: Tensor, source_lengths: Tensor, target_lengths: Tensor) -> Moves:
    """The scores in the number type that sums are computed in; arguments that do not fit raise ``ValueError``."""
    for name, scores in (("log_write", log_write), ("log_read", log_read)):
        expected = tuple(log_write.shape) if log_write.ndim == 3 else "(B, I, J)"
        if scores.ndim != 3 or scores.shape != log_write.shape or not scores.is_floating_point():
            raise ValueError(f"{name} is {described(scores)}, expected floating-point scores of shape {expected}")
    for name, lengths, axis in (("source_lengths", source_lengths, 1), ("target_lengths", target_lengths, 2)):
        check_lengths(name, lengths, len(log_write), log_write.device)
        if lengths.device.type == "cpu":
            check_range(name, lengths, log_write.shape[axis])
    dtype = torch.promote_types(torch.promote_types(log_write.dtype, log_read.dtype), torch.float32)
    return Moves(log_write.to(dtype), log_read.to(dtype))


def check_lengths(name: str, lengths: Tensor, B: int, device: torch.device) -> None:
    """Raises ``ValueError`` unless these are as many integers as there are sequences, on their device."""
    if lengths.shape != (B,) or lengths.dtype not in INTEGERS or lengths.device != device:
        raise ValueError(f"{name} is {described(lengths)}, expected integers of shape ({B},) on {device}")


def check_range(name: str, values: Tensor, largest: int) -> None:
    """Raises ``ValueError`` if a value is below 0 or above the largest one; on a GPU this waits for the values."""
    for value in map(int, values.aminmax() if values.numel() else ()):
        if not 0 <= value <= largest:
            raise ValueError(f"{name} holds {value}, expected numbers from 0 to {largest}")


def described(tensor: Tensor) -> str:
    """Type, shape and device of a tensor, for messages."""
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)} on {tensor.device}"


def has_path(source_lengths: Int[Tensor, " B"], target_lengths: Int[Tensor, " B"]) -> Bool[Tensor, " B"]:
    """Whether both sides of each pair have a token; if not, there is no last token to write in a last row."""
    return (source_lengths > 0) & (target_lengths > 0)


def forbid_impossible_moves(
    log_write: Float[Tensor, "B I J"],
    log_read: Float[Tensor, "B I J"],
    source_lengths: Int[Tensor, " B"],
    target_lengths: Int[Tensor, " B"],
) -> tuple[Float[Tensor, "B I J"], Float[Tensor, "B I J"]]:
    """Both scores with ``-inf`` at padding, for reading after the last row and for a last token that is too early.

    The last token may be written only in the last row, so that every path has read the whole input.
    """
    rows = torch.arange(log_write.shape[1], device=log_write.device)[None, :, None]
    columns = torch.arange(log_write.shape[2], device=log_write.device)[None, None, :]
    rows_left = source_lengths[:, None, None] - 1 - rows
    columns_left = target_lengths[:, None, None] - 1 - columns
    inside = (rows_left >= 0) & (columns_left >= 0)
    may_write = inside & ((columns_left > 0) | (rows_left == 0))
    may_read = inside & (rows_left > 0)
    return log_write.masked_fill(~may_write, IMPOSSIBLE), log_read.masked_fill(~may_read, IMPOSSIBLE)


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
    rows = source_lengths.long()
    return rows + target_lengths - 1, rows - 1
