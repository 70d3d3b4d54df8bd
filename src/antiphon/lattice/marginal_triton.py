"""Triton kernels for the marginal and its posteriors: one program per sequence, all diagonals in one launch.

A program holds one lane for every input row and sweeps the anti-diagonals ``d = i + j``: lane ``i`` works on cell
``(i, d - i)``, and a barrier separates the diagonals. Scores are read where they are, so nothing is copied into
diagonals, and cells outside a sequence are never touched. Lengths beyond the tensors, which are not looked at before,
count as those of the tensors. Reference: ``lattice/paths.py``.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable


def log_marginal(
    log_write: Float[Tensor, "B I J"],
    log_read: Float[Tensor, "B I J"],
    source_lengths: Int[Tensor, " B"],
    target_lengths: Int[Tensor, " B"],
) -> Float[Tensor, " B"]:
    """``log p(y | x)`` of each pair; the gradient is the posterior of each move."""
    result: Tensor = _LogMarginal.apply(log_write, log_read, source_lengths, target_lengths)  # type: ignore[no-untyped-call]
    return result


class _LogMarginal(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, log_write: Tensor, log_read: Tensor, source_lengths: Tensor, target_lengths: Tensor
    ) -> Tensor:
        write, read = log_write.contiguous(), log_read.contiguous()
        forward, log_p = _sweep_forward(write, read, source_lengths, target_lengths)
        ctx.save_for_backward(write, read, forward, log_p, source_lengths, target_lengths)
        return log_p

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        return *_sweep_backward(gradient.contiguous(), *ctx.saved_tensors), None, None


def _sweep_forward(
    write: Float[Tensor, "B I J"],
    read: Float[Tensor, "B I J"],
    source_lengths: Int[Tensor, " B"],
    target_lengths: Int[Tensor, " B"],
) -> tuple[Float[Tensor, "B I J"], Float[Tensor, " B"]]:
    """Forward scores of the cells inside each sequence (undefined elsewhere), and ``log p(y | x)``."""
    B, I, J = write.shape
    forward, log_p = torch.empty_like(write), write.new_empty(B)
    _forward[(B,)](write, read, source_lengths, target_lengths, forward, log_p, I, J, **_launch(I))
    return forward, log_p


def _sweep_backward(
    gradient: Float[Tensor, " B"],
    write: Float[Tensor, "B I J"],
    read: Float[Tensor, "B I J"],
    forward: Float[Tensor, "B I J"],
    log_p: Float[Tensor, " B"],
    source_lengths: Int[Tensor, " B"],
    target_lengths: Int[Tensor, " B"],
) -> tuple[Float[Tensor, "B I J"], Float[Tensor, "B I J"]]:
    """The posteriors of both moves, times the gradient of their sequence; zero outside it."""
    B, I, J = write.shape
    for_write, for_read = torch.zeros_like(write), torch.zeros_like(read)
    backward = torch.empty_like(write)
    # Where p is 0 every term is -inf, and -inf - -inf would be NaN: divide by 1 instead.
    log_evidence = log_p.masked_fill(log_p.isneginf(), 0.0)
    _backward[(B,)](
        write,
        read,
        source_lengths,
        target_lengths,
        forward,
        log_evidence,
        gradient,
        backward,
        for_write,
        for_read,
        I,
        J,
        **_launch(I),
    )
    return for_write, for_read


def _launch(I: int) -> dict[str, int]:
    """A lane for every row; a warp of 32 threads takes two lanes each."""
    lanes = triton.next_power_of_2(I)
    return {"LANES": lanes, "num_warps": min(8, max(1, lanes // 64))}


@triton.jit
def log_add(one, other):
    """log(exp(one) + exp(other)), also where both are impossible."""
    peak = tl.maximum(one, other)
    finite_peak = tl.where(peak == float("-inf"), 0.0, peak)
    return finite_peak + tl.log(tl.exp(one - finite_peak) + tl.exp(other - finite_peak))


@triton.jit(do_not_specialize=["I", "J"])
def _forward(write, read, rows, columns, forward, log_p, I, J, LANES: tl.constexpr):
    """forward(i, j) = logaddexp(forward(i, j-1) + write(i, j-1), forward(i-1, j) + read(i-1, j))."""
    b = tl.program_id(0).to(tl.int64)
    last_row = tl.minimum(tl.load(rows + b), I) - 1
    last_column = tl.minimum(tl.load(columns + b), J) - 1
    write += b * I * J
    read += b * I * J
    forward += b * I * J
    i = tl.arange(0, LANES)
    for d in range(last_row + last_column + 1):
        j = d - i
        inside = (i <= last_row) & (j >= 0) & (j <= last_column)
        cell = i * J + j
        has_left = inside & (j > 0)
        has_above = inside & (i > 0)
        wrote = tl.load(forward + cell - 1, has_left, float("-inf")) + tl.load(write + cell - 1, has_left, 0.0)
        did_read = tl.load(forward + cell - J, has_above, float("-inf")) + tl.load(read + cell - J, has_above, 0.0)
        here = tl.where(d == 0, 0.0, log_add(wrote, did_read))
        tl.store(forward + cell, here, inside)
        tl.debug_barrier()
    end = last_row * J + last_column
    has_path = (last_row >= 0) & (last_column >= 0)
    tl.store(log_p + b, tl.load(forward + end, has_path, float("-inf")) + tl.load(write + end, has_path, 0.0))


@triton.jit(do_not_specialize=["I", "J"])
def _backward(
    write,
    read,
    rows,
    columns,
    forward,
    log_evidence,
    gradient,
    backward,
    for_write,
    for_read,
    I,
    J,
    LANES: tl.constexpr,
):
    """backward(i, j) = logaddexp(write(i, j) + backward(i, j+1), read(i, j) + backward(i+1, j))."""
    b = tl.program_id(0).to(tl.int64)
    last_row = tl.minimum(tl.load(rows + b), I) - 1
    last_column = tl.minimum(tl.load(columns + b), J) - 1
    write += b * I * J
    read += b * I * J
    forward += b * I * J
    backward += b * I * J
    for_write += b * I * J
    for_read += b * I * J
    evidence = tl.load(log_evidence + b)
    scale = tl.load(gradient + b)
    i = tl.arange(0, LANES)
    diagonals = last_row + last_column + 1
    for step in range(diagonals):
        j = diagonals - 1 - step - i
        inside = (i <= last_row) & (j >= 0) & (j <= last_column)
        cell = i * J + j
        at_end = inside & (i == last_row) & (j == last_column)
        after_write = tl.load(backward + cell + 1, inside & (j < last_column), float("-inf"))
        after_write = tl.where(at_end, 0.0, after_write)
        after_read = tl.load(backward + cell + J, inside & (i < last_row), float("-inf"))
        wrote = tl.load(write + cell, inside, 0.0) + after_write
        did_read = tl.load(read + cell, inside, 0.0) + after_read
        tl.store(backward + cell, log_add(wrote, did_read), inside)
        arrived = tl.load(forward + cell, inside, float("-inf")) - evidence
        tl.store(for_write + cell, tl.exp(arrived + wrote) * scale, inside)
        tl.store(for_read + cell, tl.exp(arrived + did_read) * scale, inside)
        tl.debug_barrier()
