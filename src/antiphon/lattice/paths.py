"""Single paths of each pair: the most probable one, and draws from the posterior over all of them."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from antiphon.lattice.marginal import Sweep
from antiphon.lattice.moves import IMPOSSIBLE, Moves, checked_moves, end_cells


class BestPath(NamedTuple):
    """The log score of each best path, and its alignment: the input position of each token (-1 at padding)."""

    log_score: Float[Tensor, " B"]
    alignment: Int[Tensor, "B J"]


@torch.no_grad()
def best_path(
    log_write: Float[Tensor, "B I J"],
    log_read: Float[Tensor, "B I J"],
    source_lengths: Int[Tensor, " B"],
    target_lengths: Int[Tensor, " B"],
) -> BestPath:
    """The path with the highest product of moves; among equals the one that reads sooner, so that it writes later.

    best(i, j) = max(best(i, j-1) + log_write(i, j-1), best(i-1, j) + log_read(i-1, j))

    Not differentiable. The alignment is -1 at padding, and everywhere if there is no path.

    Cost: O(I J) cells in I + J vector steps, and as many to trace back.
    """
    moves = checked_moves(log_write, log_read, source_lengths, target_lengths)
    if not log_write.numel():
        return BestPath(moves.log_write.new_full((len(log_write),), IMPOSSIBLE), _no_rows(log_write, 1)[0])
    best = Sweep.of(moves, source_lengths, target_lengths, torch.maximum)
    thresholds = best.end.new_zeros(len(best.write) - 1, 1, len(best.end))
    return BestPath(best.end, _trace_back(best, source_lengths, target_lengths, thresholds)[0])


@torch.no_grad()
def sample_alignments(
    log_write: Float[Tensor, "B I J"],
    log_read: Float[Tensor, "B I J"],
    source_lengths: Int[Tensor, " B"],
    target_lengths: Int[Tensor, " B"],
    samples: int = 1,
    *,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "S B J"]:
    """Alignments drawn independently from the posterior: the input position of each token, ``samples`` for each pair.

    Drawn exactly, backwards from the end cell: the move before cell ``(i, j)`` was a write with probability
    ``exp(forward(i, j-1) + log_write(i, j-1) - forward(i, j))``. Computed in float64 for all types of scores.

    Not differentiable. An alignment is -1 at padding, and everywhere if there is no path. The generator must be on the
    device of the scores.

    Cost: one forward sweep, whatever the number of samples, and I + J vector steps of ``S * B`` elements.
    """
    if samples < 0:
        raise ValueError(f"samples is {samples}, expected 0 or more")
    moves = checked_moves(log_write, log_read, source_lengths, target_lengths)
    if not log_write.numel():
        return _no_rows(log_write, samples)
    doubles = Moves(*(scores.double() for scores in moves))
    forward = Sweep.of(doubles, source_lengths, target_lengths, torch.logaddexp)
    size = len(forward.write) - 1, samples, len(forward.end)
    draws = torch.rand(size, generator=generator, dtype=torch.float64, device=log_write.device)
    return _trace_back(forward, source_lengths, target_lengths, torch.log1p(-draws))


def _no_rows(log_write: Float[Tensor, "B I J"], samples: int) -> Int[Tensor, "S B J"]:
    B, _, J = log_write.shape
    return torch.full((samples, B, J), -1, device=log_write.device)


def _trace_back(
    sweep: Sweep,
    source_lengths: Int[Tensor, " B"],
    target_lengths: Int[Tensor, " B"],
    thresholds: Float[Tensor, "steps S B"],
) -> Int[Tensor, "S B J"]:
    """The row of each token, from the end cells backwards.

    A path came to a cell by writing if the log of that move's share in the cell's score reaches the threshold. The
    share in a maximum is 1 if writing was the best move.
    """
    D, B, I = sweep.write.shape
    S, J = thresholds.shape[1], D - I
    log_share = sweep.scores[:-1, :, 1:] + sweep.write[:-1] - sweep.scores[1:, :, 1:]
    sequence = torch.arange(B, device=sweep.write.device)
    diagonal, row = (cell.repeat(S, 1) for cell in end_cells(source_lengths, target_lengths))
    diagonal = diagonal.masked_fill(sweep.end == IMPOSSIBLE, 0)
    rows = row.new_full((S, B, J + 1), -1)
    for threshold in thresholds.unbind(0):
        moves, wrote = diagonal > 0, log_share[diagonal - 1, sequence, row] >= threshold
        # A token is stored in its column when the step back undoes a write; column J collects the other steps.
        column = torch.where(moves & wrote, diagonal - row - 1, J)
        rows.scatter_(2, column[:, :, None], row[:, :, None])
        row = row - (moves & ~wrote).to(row.dtype)
        diagonal = (diagonal - 1).clamp(min=0)
    return rows[:, :, :J]
