"""Triton kernel for one decoding step: the probability of each row that the next token is written there.

    odds(i)     = v . tanh(a_i + c) + d                                  of writing in row i
    arrive(i)   in proportion to exp(log_weight(i) + A[i, y])            y, the last token, was written in row i
    ready(i)    = emit(i) * sum over r <= i of arrive(r) * product of shift(r..i-1)

One program handles one prefix with all of its rows, in double precision. Reference: ``models/transducer.py``.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

_TILE = 2048
"""Elements (rows times hidden units) that are computed at once."""


def log_ready(
    log_weight: Float[Tensor, "N I"],
    logits: Float[Tensor, "B I V"],
    tokens: Int[Tensor, " N"],
    source_units: Float[Tensor, "B I T"],
    target_units: Float[Tensor, "N T"],
    readout: tuple[Float[Tensor, " T"], Float[Tensor, " 1"]],
    lengths: Int[Tensor, " B"],
    *,
    final_write_forced: bool,
    padding: int,
) -> Float[Tensor, "N I"]:
    """``log ready(n, i)`` after one more token of each prefix; prefixes are sorted by source, the same number for each.

    A prefix whose token is ``padding`` is empty and gets ``-inf``.
    """
    B, I, V = logits.shape
    N, T = target_units.shape
    result, rows = torch.empty_like(log_weight), triton.next_power_of_2(I)
    _log_ready[(N,)](
        log_weight, logits, tokens, source_units.contiguous(), target_units.contiguous(), *readout, lengths, result,
        N // B, I, V, T, padding, FORCED=final_write_forced, ROWS=rows, UNITS=max(1, _TILE // rows),
    )  # fmt: skip
    return result


@triton.jit
def _log_add(a, b):
    higher = tl.maximum(a, b)
    base = tl.where(higher == float("-inf"), 0.0, higher)
    return base + tl.log(tl.exp(a - base) + tl.exp(b - base))


@triton.jit(do_not_specialize=["K", "I", "V", "T", "padding"])
def _log_ready(
    log_weight,
    logits,
    tokens,
    source_units,
    target_units,
    weight,
    bias,
    lengths,
    result,
    K,
    I,
    V,
    T,
    padding,
    FORCED: tl.constexpr,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
):
    """log ready(i) of one prefix; tanh(x) = 1 - 2 / (1 + exp(2 x))."""
    n = tl.program_id(0).to(tl.int64)
    b = n // K
    i = tl.arange(0, ROWS)
    inside = i < I
    product = tl.zeros((ROWS,), tl.float32)
    for first in range(0, T, UNITS):
        t = first + tl.arange(0, UNITS)
        a = tl.load(source_units + (b * I + i[:, None]) * T + t[None, :], inside[:, None] & (t < T)[None, :], 0.0)
        c = tl.load(target_units + n * T + t, t < T, 0.0)
        v = tl.load(weight + t, t < T, 0.0)
        product += tl.sum(v[None, :] * (1.0 - 2.0 / (1.0 + tl.exp(2.0 * (a + c[None, :])))), 1)
    odds = (product + tl.load(bias)).to(tl.float64)
    softplus = tl.log(1.0 + tl.exp(-tl.abs(odds)))
    log_emit = tl.minimum(odds, 0.0) - softplus
    log_shift = tl.where(inside, -tl.maximum(odds, 0.0) - softplus, 0.0)
    length = tl.load(lengths + b)
    if FORCED:
        log_emit = tl.where(i == length - 1, 0.0, log_emit)
    token = tl.load(tokens + n)
    row_logits = tl.load(logits + (b * I + i) * V + token, inside, 0.0).to(tl.float64)
    written = tl.load(log_weight + n * I + i, inside, float("-inf")) + row_logits
    peak = tl.max(written, 0)
    log_arrive = written - peak - tl.log(tl.sum(tl.exp(written - peak), 0))
    before = tl.cumsum(log_shift, 0) - log_shift
    log_forward = before + tl.associative_scan(log_arrive - before, 0, _log_add)
    exists = (i < length) & (token != padding)
    tl.store(result + n * I + i, tl.where(exists, log_forward + log_emit, float("-inf")), inside)
