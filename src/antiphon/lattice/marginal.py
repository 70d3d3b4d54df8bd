"""Log marginal over all paths, with its analytic gradient, and the posteriors of the moves."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from antiphon.lattice.moves import IMPOSSIBLE, end_cells, forbid_impossible_moves, from_diagonals, to_diagonals
from antiphon.triton_support import kernels_can_run


class Posteriors(NamedTuple):
    """Probabilities, given input and output, that a path makes each move.

    ``write[b, i, j]`` is the probability that token ``j`` is written at position ``i``: it sums to one over ``i``.
    ``shift[b, i, j]`` is the probability that position ``i`` is left before token ``j``: it sums to one over ``j``.
    """

    write: Float[Tensor, "B I J"]
    shift: Float[Tensor, "B I J"]


def log_marginal(
    log_write: Float[Tensor, "B I J"],
    log_shift: Float[Tensor, "B I J"],
    source_lengths: Int[Tensor, " B"],
    target_lengths: Int[Tensor, " B"],
) -> Float[Tensor, " B"]:
    """``log p(y | x)``, the log of the sum over all paths of the product of their moves.

    Its gradient is the posterior of each move, computed by a backward sweep instead of autograd.

    Thesis: section 5.3, forward and backward algorithms, there in O(I^2 J).
    Cost: O(I J) cells in I + J vector steps.
    """
    if kernels_can_run(log_write):
        from antiphon.lattice import marginal_triton

        return marginal_triton.log_marginal(log_write, log_shift, source_lengths, target_lengths)
    result: Tensor = _LogMarginal.apply(log_write, log_shift, source_lengths, target_lengths)  # type: ignore[no-untyped-call]
    return result


@torch.no_grad()
def posteriors(
    log_write: Float[Tensor, "B I J"],
    log_shift: Float[Tensor, "B I J"],
    source_lengths: Int[Tensor, " B"],
    target_lengths: Int[Tensor, " B"],
) -> Posteriors:
    """The posterior of every move; zero at padding and for pairs that no path can produce.

    write(i, j) = exp(forward(i, j) + log_write(i, j) + backward(i, j + 1) - log p)
    shift(i, j) = exp(forward(i, j) + log_shift(i, j) + backward(i + 1, j) - log p)

    Thesis: appendix A, ``alpha(i, j) beta(i, j) / alpha(I, J)``.
    """
    write, shift = _diagonal_moves(log_write, log_shift, source_lengths, target_lengths)
    forward = _sweep_forward(write, shift)
    log_p = _end_scores(forward, source_lengths, target_lengths)
    return _posteriors(write, shift, forward, log_p, source_lengths, target_lengths)


class _LogMarginal(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, log_write: Tensor, log_shift: Tensor, source_lengths: Tensor, target_lengths: Tensor
    ) -> Tensor:
        write, shift = _diagonal_moves(log_write, log_shift, source_lengths, target_lengths)
        forward = _sweep_forward(write, shift)
        log_p = _end_scores(forward, source_lengths, target_lengths)
        ctx.save_for_backward(write, shift, forward, log_p, source_lengths, target_lengths)
        return log_p

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        posterior = _posteriors(*ctx.saved_tensors)
        scale = gradient[:, None, None]
        return posterior.write * scale, posterior.shift * scale, None, None


def _diagonal_moves(
    log_write: Tensor, log_shift: Tensor, source_lengths: Tensor, target_lengths: Tensor
) -> tuple[Float[Tensor, "D B I"], Float[Tensor, "D B I"]]:
    """The scores of both moves on diagonals, ``-inf`` where they are impossible."""
    write, shift = forbid_impossible_moves(log_write, log_shift, source_lengths, target_lengths)
    return to_diagonals(write), to_diagonals(shift)


def _sweep_forward(write: Float[Tensor, "D B I"], shift: Float[Tensor, "D B I"]) -> Float[Tensor, "D B I+1"]:
    """Forward scores on diagonals, with one impossible row above the first so that every row has a predecessor.

    forward(d, i) = logaddexp(forward(d-1, i) + write(d-1, i), forward(d-1, i-1) + shift(d-1, i-1))
    """
    D, B, I = write.shape
    forward = write.new_full((D, B, I + 1), IMPOSSIBLE)
    forward[0, :, 1] = 0.0
    same, above = forward[:, :, 1:].unbind(0), forward[:, :, :-1].unbind(0)
    writes, shifts_from_above = write.unbind(0), pad(shift[:, :, :-1], (1, 0), value=IMPOSSIBLE).unbind(0)
    for d in range(1, D):
        torch.logaddexp(same[d - 1] + writes[d - 1], above[d - 1] + shifts_from_above[d - 1], out=same[d])
    return forward


def _sweep_backward(
    write: Float[Tensor, "D B I"], shift: Float[Tensor, "D B I"], end: Float[Tensor, "D B I"]
) -> Float[Tensor, "D B I+1"]:
    """Backward scores on diagonals, with one impossible row below the last; ``end`` is 0 in end cells, else -inf.

    backward(d, i) = logaddexp(write(d, i) + backward(d+1, i), shift(d, i) + backward(d+1, i+1)), and 0 in end cells
    """
    D, _, I = write.shape
    backward = pad(end, (0, 1), value=IMPOSSIBLE)
    same, below = backward[:, :, :I].unbind(0), backward[:, :, 1:].unbind(0)
    writes, shifts = write.unbind(0), shift.unbind(0)
    for d in range(D - 2, -1, -1):
        here = torch.logaddexp(writes[d] + same[d + 1], shifts[d] + below[d + 1])
        torch.maximum(here, same[d], out=same[d])  # keeps the 0 of end cells, out of which no move leads
    return backward


def _end_scores(
    forward: Float[Tensor, "D B R"], source_lengths: Int[Tensor, " B"], target_lengths: Int[Tensor, " B"]
) -> Float[Tensor, " B"]:
    """``log p(y | x)``: the forward score of the end cell of each sequence."""
    diagonal, row = end_cells(source_lengths, target_lengths)
    sequence = torch.arange(forward.shape[1], device=forward.device)
    return forward[diagonal, sequence, row + 1]


def _posteriors(
    write: Tensor, shift: Tensor, forward: Tensor, log_p: Tensor, source_lengths: Tensor, target_lengths: Tensor
) -> Posteriors:
    diagonal, row = end_cells(source_lengths, target_lengths)
    end = torch.full_like(write, IMPOSSIBLE)
    end[diagonal, torch.arange(write.shape[1], device=write.device), row] = 0.0
    backward = _sweep_backward(write, shift, end)
    # Where p is 0 every term is -inf, and -inf - -inf would be NaN: divide by 1 instead.
    log_evidence = log_p.masked_fill(log_p == IMPOSSIBLE, 0.0)[:, None]
    arrived = forward[:-1, :, 1:] - log_evidence
    wrote = arrived + write[:-1] + backward[1:, :, :-1]
    shifted = arrived + shift[:-1] + backward[1:, :, 1:]
    return Posteriors(*(_probabilities(moves) for moves in (wrote, shifted)))


def _probabilities(log_moves: Float[Tensor, "moves B I"]) -> Float[Tensor, "B I J"]:
    last_diagonal = log_moves.new_full((1, *log_moves.shape[1:]), IMPOSSIBLE)
    return from_diagonals(torch.cat([log_moves, last_diagonal])).exp()
