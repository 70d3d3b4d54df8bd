"""The single most probable path of each pair."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from antiphon.lattice.moves import IMPOSSIBLE, end_cells, forbid_impossible_moves, to_diagonals
from antiphon.pause_points import pause


class BestPath(NamedTuple):
    """The log score of each best path, and its alignment: the input position of each token (-1 at padding)."""

    log_score: Float[Tensor, " B"]
    alignment: Int[Tensor, "B J"]


@torch.no_grad()
def best_path(
    log_write: Float[Tensor, "B I J"],
    log_shift: Float[Tensor, "B I J"],
    source_lengths: Int[Tensor, " B"],
    target_lengths: Int[Tensor, " B"],
) -> BestPath:
    """The path with the highest product of moves; among equals the one that reads sooner, so that it writes later.

    best(d, i) = max(best(d-1, i) + write(d-1, i), best(d-1, i-1) + shift(d-1, i-1))

    Cost: O(I J) cells in I + J vector steps, and as many to trace back.
    """
    write, shift = forbid_impossible_moves(log_write, log_shift, source_lengths, target_lengths)
    best, came_by_writing = _sweep(to_diagonals(write), to_diagonals(shift))
    diagonal, row = end_cells(source_lengths, target_lengths)
    log_score = best[diagonal, torch.arange(best.shape[1], device=best.device), row + 1]
    return BestPath(log_score, _trace_back(came_by_writing, diagonal, row, log_write.shape[2]))


def _sweep(
    write: Float[Tensor, "D B I"], shift: Float[Tensor, "D B I"]
) -> tuple[Float[Tensor, "D B I+1"], Bool[Tensor, "D B I"]]:
    """The best scores on diagonals, with one impossible row above the first, and whether each came by writing."""
    D, B, I = write.shape
    best = write.new_full((D, B, I + 1), IMPOSSIBLE)
    best[0, :, 1] = 0.0
    came_by_writing = torch.ones(D, B, I, dtype=torch.bool, device=write.device)
    for d in range(1, D):
        pause()
        wrote = best[d - 1, :, 1:] + write[d - 1]
        shifted = best[d - 1, :, 1:-1] + shift[d - 1, :, :-1]
        best[d, :, 1] = wrote[:, 0]
        torch.maximum(wrote[:, 1:], shifted, out=best[d, :, 2:])
        torch.ge(wrote[:, 1:], shifted, out=came_by_writing[d, :, 1:])
    return best, came_by_writing


def _trace_back(
    came_by_writing: Bool[Tensor, "D B I"], diagonal: Int[Tensor, " B"], row: Int[Tensor, " B"], J: int
) -> Int[Tensor, "B J"]:
    """The row of each token, from the end cells, given by their diagonals and rows, backwards."""
    B = row.shape[0]
    sequence = torch.arange(B, device=row.device)
    rows = row.new_full((B, J + 1), -1)
    for _ in range(came_by_writing.shape[0] - 1):
        pause()
        wrote = came_by_writing[diagonal, sequence, row]
        moving = diagonal > 0
        # A token is stored in its column when the step back undoes a write; column J collects the other steps.
        column = torch.where(moving & wrote, diagonal - row - 1, J)
        rows[sequence, column] = torch.where(moving & wrote, row, rows[sequence, column])
        row = torch.where(moving & ~wrote, row - 1, row)
        diagonal = torch.where(moving, diagonal - 1, diagonal)
    return rows[:, :J]
