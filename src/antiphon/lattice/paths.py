"""Paths of two moves: the sum over all of them with its analytic gradient, posteriors, the best path, and draws.

All cells of one anti-diagonal ``d = i + j`` depend only on the diagonal before it, so a sweep over the ``D = I + J``
diagonals handles every sequence of a batch, and every cell of a diagonal, in one vector operation. The grid gets
one more column than there are tokens: the cell at row ``I - 1`` in column ``J`` means that all tokens are written.
"""

from collections.abc import Callable
from functools import cache
from inspect import unwrap
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid, pad

from antiphon.device import is_traced, kernels_can_run

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


class Posteriors(NamedTuple):
    """Probabilities, given input and output, that a path makes each move.

    ``write[b, i, j]`` is the probability that token ``j`` is written at position ``i``: it sums to one over ``i``.
    ``read[b, i, j]`` is the probability that position ``i`` is left before token ``j``: it sums to one over ``j``.
    """

    write: Float[Tensor, "B I J"]
    read: Float[Tensor, "B I J"]


def log_marginal(
    log_write: Float[Tensor, "B I J"],
    log_read: Float[Tensor, "B I J"],
    source_lengths: Int[Tensor, " B"],
    target_lengths: Int[Tensor, " B"],
) -> Float[Tensor, " B"]:
    """``log p(y | x)``, the log of the sum over all paths of the product of their moves.

    Its gradient is the posterior of each move, computed by a backward sweep instead of autograd: 0 where ``log p`` is
    ``-inf``. There is no second derivative. On a GPU, Triton kernels compute both.

    Thesis: section 4.4, forward and backward algorithms, there in O(I^2 J).
    Cost: O(I J) cells in I + J vector steps.
    """
    moves = checked_moves(log_write, log_read, source_lengths, target_lengths)
    if not log_write.numel():
        return (moves.log_write + moves.log_read).sum((1, 2)) + IMPOSSIBLE
    if kernels_can_run(log_write):
        from antiphon.lattice import marginal_triton

        return marginal_triton.log_marginal(*moves, source_lengths, target_lengths)
    result: Tensor = _LogMarginal.apply(*moves, source_lengths, target_lengths)  # type: ignore[no-untyped-call]
    return result


@torch.no_grad()
def posteriors(
    log_write: Float[Tensor, "B I J"],
    log_read: Float[Tensor, "B I J"],
    source_lengths: Int[Tensor, " B"],
    target_lengths: Int[Tensor, " B"],
) -> Posteriors:
    """The posterior of every move; zero at padding and for pairs that no path can produce. Not differentiable.

    write(i, j) = exp(forward(i, j) + log_write(i, j) + backward(i, j + 1) - log p)
    read(i, j) = exp(forward(i, j) + log_read(i, j) + backward(i + 1, j) - log p)

    Thesis: appendix A, ``alpha(i, j) beta(i, j) / alpha(I, J)``.
    """
    moves = checked_moves(log_write, log_read, source_lengths, target_lengths)
    if not log_write.numel():
        return Posteriors(*moves)
    sweep = Sweep.of(moves, source_lengths, target_lengths, torch.logaddexp)
    return _posteriors(*sweep, source_lengths, target_lengths)


class Sweep(NamedTuple):
    """Scores of reaching each cell, on diagonals, and the moves that they were computed from.

    There is one impossible row above the first, so that every row has a predecessor.
    """

    write: Float[Tensor, "D B I"]
    read: Float[Tensor, "D B I"]
    scores: Float[Tensor, "D B I+1"]
    end: Float[Tensor, " B"]
    """The score of each pair's end cell; ``-inf`` where it has no path."""

    @classmethod
    def of(
        cls,
        moves: Moves,
        source_lengths: Int[Tensor, " B"],
        target_lengths: Int[Tensor, " B"],
        combine: Callable[..., Tensor],
    ) -> "Sweep":
        """scores(d, i) = combine(scores(d-1, i) + write(d-1, i), scores(d-1, i-1) + read(d-1, i-1))."""
        write, read = (to_diagonals(each) for each in forbid_impossible_moves(*moves, source_lengths, target_lengths))
        D, B, I = write.shape
        scores = write.new_full((D, B, I + 1), IMPOSSIBLE)
        scores[0, :, 1] = 0.0
        same, above = scores[:, :, 1:].unbind(0), scores[:, :, :-1].unbind(0)
        writes, reads_from_above = write.unbind(0), pad(read[:, :, :-1], (1, 0), value=IMPOSSIBLE).unbind(0)
        for d in range(1, D):
            combine(same[d - 1] + writes[d - 1], above[d - 1] + reads_from_above[d - 1], out=same[d])
        diagonal, row = end_cells(source_lengths, target_lengths)
        end = scores[diagonal, torch.arange(B, device=scores.device), row + 1]
        return cls(write, read, scores, end.masked_fill(~has_path(source_lengths, target_lengths), IMPOSSIBLE))


class _LogMarginal(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, log_write: Tensor, log_read: Tensor, source_lengths: Tensor, target_lengths: Tensor
    ) -> Tensor:
        sweep = Sweep.of(Moves(log_write, log_read), source_lengths, target_lengths, torch.logaddexp)
        ctx.save_for_backward(*sweep, source_lengths, target_lengths)
        return sweep.end

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        posterior = _posteriors(*ctx.saved_tensors)
        scale = gradient[:, None, None]
        return posterior.write * scale, posterior.read * scale, None, None


def _sweep_backward(
    write: Float[Tensor, "D B I"], read: Float[Tensor, "D B I"], end: Float[Tensor, "D B I"]
) -> Float[Tensor, "D B I+1"]:
    """Backward scores on diagonals, with one impossible row below the last; ``end`` is 0 in end cells, else -inf.

    backward(d, i) = logaddexp(write(d, i) + backward(d+1, i), read(d, i) + backward(d+1, i+1)), and 0 in end cells
    """
    D, _, I = write.shape
    backward = pad(end, (0, 1), value=IMPOSSIBLE)
    same, below = backward[:, :, :I].unbind(0), backward[:, :, 1:].unbind(0)
    writes, reads = write.unbind(0), read.unbind(0)
    for d in range(D - 2, -1, -1):
        here = torch.logaddexp(writes[d] + same[d + 1], reads[d] + below[d + 1])
        torch.maximum(here, same[d], out=same[d])  # keeps the 0 of end cells, out of which no move leads
    return backward


def _posteriors(
    write: Tensor, read: Tensor, forward: Tensor, log_p: Tensor, source_lengths: Tensor, target_lengths: Tensor
) -> Posteriors:
    diagonal, row = end_cells(source_lengths, target_lengths)
    end = torch.full_like(write, IMPOSSIBLE)
    end[diagonal, torch.arange(write.shape[1], device=write.device), row] = 0.0
    backward = _sweep_backward(write, read, end)
    # Where p is 0 every term is -inf, and -inf - -inf would be NaN: divide by 1 instead.
    log_evidence = log_p.masked_fill(log_p == IMPOSSIBLE, 0.0)[:, None]
    arrived = forward[:-1, :, 1:] - log_evidence
    wrote = arrived + write[:-1] + backward[1:, :, :-1]
    did_read = arrived + read[:-1] + backward[1:, :, 1:]
    return Posteriors(*(_probabilities(moves) for moves in (wrote, did_read)))


def _probabilities(log_moves: Float[Tensor, "moves B I"]) -> Float[Tensor, "B I J"]:
    last_diagonal = log_moves.new_full((1, *log_moves.shape[1:]), IMPOSSIBLE)
    return from_diagonals(torch.cat([log_moves, last_diagonal])).exp()


def forward_along(log_arrive: Float[Tensor, "*M I"], log_move: Float[Tensor, "*M I"]) -> Float[Tensor, "*M I"]:
    """Forward scores along one row or column, ``forward(i) = logaddexp(log_arrive(i), forward(i-1) + log_move(i-1))``.

    ``log_arrive`` is the score of entering the line at a cell, ``log_move`` of moving from a cell to the next. With
    ``S(i)`` the sum of ``log_move`` before ``i``, ``forward(i) = S(i) + log of the sum over r <= i of exp(log_arrive(r)
    - S(r))``. Scores should be doubles: ``S`` may be large.
    """
    moves_before = log_move.cumsum(-1) - log_move
    lead = log_arrive - moves_before
    return moves_before + (_scripted(_log_cumsum)(lead) if is_traced() else torch.logcumsumexp(lead, -1))


@cache
def _scripted(function: Any) -> Any:
    """The function with its loop, which a trace would unroll."""
    return torch.jit.script(unwrap(function))  # without the check of shapes, if there is one


def _log_cumsum(values: Tensor) -> Tensor:
    """What ``torch.logcumsumexp`` gives for doubles, in ``log2(I)`` steps: ONNX has no such operator."""
    lowest = -1e300  # the difference of two infinite values would be none
    total = values.clamp(min=lowest)
    reach = 1
    while reach < values.shape[-1]:
        before = pad(total, [reach, -reach], value=lowest)
        total = torch.maximum(total, before) + torch.log1p(torch.exp(-(total - before).abs()))
        reach *= 2
    return total.masked_fill(total < lowest / 2, -float("inf"))


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
