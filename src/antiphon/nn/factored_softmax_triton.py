"""Triton kernels for the factored softmax: the vocabulary is processed in tiles, and nothing over it is stored.

    Z(i, j)  = sum_v exp(A[i, v] - peak_i) exp(C[j, v] - peak_j)          products of tiles, summed over tiles

Cells whose sum underflows are recomputed inside the kernels, as an online log-sum-exp with a maximum per cell, so the
result is exact for any logits and needs no device sync. Logits may
be float32, bfloat16 or float16; all sums are float32. Reference: ``nn/factored_softmax.py``.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from antiphon.nn.copying import CellCopies
from antiphon.nn.factored_softmax import add_at_tokens, read_tokens

_PROGRAMS = 1024
"""Programs of a launch at least, so that every multiprocessor of a large GPU has several."""
_TOKENS = 64
"""Tokens of one tile."""
_UNIT = tl.constexpr(8)
"""Row lengths are a multiple of this, and kernels know it, so that loads can be wide."""
_PRECISION = tl.constexpr("tf32x3")
"""How tiles are multiplied: on tensor cores, in three products that together keep single precision."""


def log_token_probabilities(
    source_logits: Float[Tensor, "B I V"],
    target_logits: Float[Tensor, "B J V"],
    targets: Int[Tensor, "B J"],
    copies: CellCopies | None = None,
) -> Float[Tensor, "B I J"]:
    """``log softmax(A[i] + C[j])`` read off at ``targets[j]`` for every ``i`` and ``j``; copies are added."""
    given = source_logits, target_logits, targets, copies
    result: Tensor = _LogTokenProbabilities.apply(*given)  # type: ignore[no-untyped-call]
    return result


class _LogTokenProbabilities(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, source_logits: Tensor, target_logits: Tensor, targets: Tensor, copies: CellCopies | None
    ) -> Tensor:
        source, target = aligned(source_logits), aligned(target_logits)
        ctx.V = source_logits.shape[2]
        source_peak, target_peak = source.amax(2).float(), target.amax(2).float()
        z, log_z = _normalisers(source, target, source_peak, target_peak)
        ctx.save_for_backward(source, target, targets, source_peak, target_peak, z, log_z)
        result, ctx.copied = read_tokens(source, target, targets, log_z, copies)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        source, target, targets, source_peak, target_peak, z, log_z = ctx.saved_tensors
        lost = _underflow(z, source.shape[2])
        per_z = (gradient / z).masked_fill(lost, 0.0)
        for_lost = gradient.masked_fill(~lost, 0.0)
        sides = (source, source_peak), (target, target_peak)
        for_source = _side_gradient(*sides[0], *sides[1], per_z, for_lost, log_z)
        for_target = _side_gradient(*sides[1], *sides[0], per_z.mT, for_lost.mT, log_z.mT)
        add_at_tokens(for_source, for_target, targets, gradient, ctx.copied)
        return for_source[:, :, : ctx.V], for_target[:, :, : ctx.V], None, None


def aligned(logits: Float[Tensor, "B N V"]) -> Float[Tensor, "B N W"]:
    """The logits in contiguous rows whose length is a multiple of ``_UNIT``; added tokens are impossible."""
    more = -logits.shape[2] % _UNIT.value
    return pad(logits, (0, more), value=float("-inf")) if more else logits.contiguous()


def _underflow(z: Float[Tensor, "B I J"], V: int) -> Bool[Tensor, "B I J"]:
    """True where up to V terms lost to underflow, each below ``tiny``, may matter."""
    return z < min_sum(V)


def min_sum(V: int) -> float:
    """The lowest sum of ``V`` products that underflow cannot have changed."""
    kind = torch.finfo(torch.float32)
    return V * kind.tiny / kind.eps


def _normalisers(
    source: Float[Tensor, "B I V"],
    target: Float[Tensor, "B J V"],
    source_peak: Float[Tensor, "B I"],
    target_peak: Float[Tensor, "B J"],
) -> tuple[Float[Tensor, "B I J"], Float[Tensor, "B I J"]]:
    """``Z`` without the peaks, and ``log Z`` with them."""
    B, I, V = source.shape
    J = target.shape[1]
    rows, columns = _tile(I), _tile(J)
    tiles = triton.cdiv(I, rows) * triton.cdiv(J, columns)
    parts = max(1, min(triton.cdiv(V, 4 * _TOKENS), triton.cdiv(_PROGRAMS, B * tiles)))
    tokens_per_part = triton.cdiv(triton.cdiv(V, parts), _TOKENS) * _TOKENS
    parts = triton.cdiv(V, tokens_per_part)
    sums = torch.empty(parts, B, I, J, device=source.device)
    sizes = {"ROWS": rows, "COLUMNS": columns}
    _sum_tiles[(B, tiles, parts)](
        source,
        target,
        source_peak,
        target_peak,
        sums,
        B,
        I,
        J,
        V // _UNIT.value,
        tokens_per_part,
        TOKENS=_TOKENS,
        num_stages=1,
        **sizes,
    )
    z = sums.sum(0) if parts > 1 else sums[0]
    log_z = z.log() + source_peak[:, :, None] + target_peak[:, None]
    _rescue[(B, tiles)](source, target, z, log_z, I, J, V, min_sum(V), **sizes)
    return z, log_z


def _side_gradient(
    own: Float[Tensor, "B N V"],
    own_peak: Float[Tensor, "B N"],
    other: Float[Tensor, "B M V"],
    other_peak: Float[Tensor, "B M"],
    per_z: Float[Tensor, "B N M"],
    for_lost: Float[Tensor, "B N M"],
    log_z: Float[Tensor, "B N M"],
) -> Float[Tensor, "B N V"]:
    """Minus the sum over the other side of ``gradient(n, m) softmax(n, m, v)``."""
    B, N, V = own.shape
    M = other.shape[1]
    rows = _tile(N)
    result = torch.empty_like(own)
    _gradient_tiles[(B, triton.cdiv(N, rows), triton.cdiv(V, _TOKENS))](
        own,
        own_peak,
        other,
        other_peak,
        per_z.contiguous(),
        for_lost.contiguous(),
        log_z.contiguous(),
        for_lost.ne(0).any(2).int(),
        result,
        N,
        M,
        V // _UNIT.value,
        ROWS=rows,
        COLUMNS=_tile(M),
        TOKENS=_TOKENS,
        num_stages=1,
    )
    return result


def _tile(length: int) -> int:
    """Rows of a tile; a product of tiles needs at least sixteen."""
    return min(64, max(16, 1 << (length - 1).bit_length()))


@triton.jit
def _cells_of_tile(J, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Rows and columns of this program's tile of cells."""
    tiles_across = tl.cdiv(J, COLUMNS)
    i = tl.program_id(1) // tiles_across * ROWS + tl.arange(0, ROWS)
    j = tl.program_id(1) % tiles_across * COLUMNS + tl.arange(0, COLUMNS)
    return i, j


@triton.jit(do_not_specialize=["B", "I", "J", "units", "tokens_per_part"])
def _sum_tiles(
    source,
    target,
    source_peak,
    target_peak,
    sums,
    B,
    I,
    J,
    units,
    tokens_per_part,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TOKENS: tl.constexpr,
):
    """Z(i, j) over one part of the vocabulary, for one tile of cells."""
    V = units * _UNIT
    b = tl.program_id(0).to(tl.int64)
    i, j = _cells_of_tile(J, ROWS, COLUMNS)
    part = tl.program_id(2).to(tl.int64)
    first = tl.program_id(2) * tokens_per_part
    peak_i = tl.load(source_peak + b * I + i, i < I, 0.0)[:, None]
    peak_j = tl.load(target_peak + b * J + j, j < J, 0.0)[:, None]
    z = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(first, min(first + tokens_per_part, V), TOKENS):
        v = start + tl.arange(0, TOKENS)[None, :]
        a = tl.load(source + (b * I + i[:, None]) * V + v, (i[:, None] < I) & (v < V), float("-inf")).to(tl.float32)
        c = tl.load(target + (b * J + j[:, None]) * V + v, (j[:, None] < J) & (v < V), float("-inf")).to(tl.float32)
        z = tl.dot(tl.exp(a - peak_i), tl.trans(tl.exp(c - peak_j)), z, input_precision=_PRECISION)
    cells = ((part * B + b) * I + i[:, None]) * J + j[None, :]
    tl.store(sums + cells, z, (i[:, None] < I) & (j[None, :] < J))


@triton.jit(do_not_specialize=["I", "J"])
def _rescue(source, target, z, log_z, I, J, V, least, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Recomputes log Z(i, j) token by token with a maximum per cell, for tiles in which a sum has underflowed."""
    b = tl.program_id(0).to(tl.int64)
    i, j = _cells_of_tile(J, ROWS, COLUMNS)
    inside = (i[:, None] < I) & (j[None, :] < J)
    cells = (b * I + i[:, None]) * J + j[None, :]
    sums = tl.load(z + cells, inside, float("inf"))
    if tl.min(tl.min(sums, 1), 0) < least:
        peak = tl.full((ROWS, COLUMNS), float("-inf"), tl.float32)
        total = tl.zeros((ROWS, COLUMNS), tl.float32)
        for v in range(V):
            a = tl.load(source + (b * I + i) * V + v, i < I, 0.0).to(tl.float32)
            c = tl.load(target + (b * J + j) * V + v, j < J, 0.0).to(tl.float32)
            logit = a[:, None] + c[None, :]
            higher = tl.maximum(peak, logit)
            total = total * tl.exp(peak - higher) + tl.exp(logit - higher)
            peak = higher
        tl.store(log_z + cells, peak + tl.log(total), inside & (sums < least))


@triton.jit(do_not_specialize=["N", "M", "units"])
def _gradient_tiles(
    own,
    own_peak,
    other,
    other_peak,
    per_z,
    for_lost,
    log_z,
    has_lost,
    result,
    N,
    M,
    units,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TOKENS: tl.constexpr,
):
    """-exp(own - peak) (gradient / Z) exp(other - peak) in one tile; underflowed cells one by one."""
    V = units * _UNIT
    b = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    v = tl.program_id(2) * TOKENS + tl.arange(0, TOKENS)
    total = tl.zeros((ROWS, TOKENS), tl.float32)
    for first in range(0, M, COLUMNS):
        m = first + tl.arange(0, COLUMNS)
        known = (m[:, None] < M) & (v[None, :] < V)
        logits = tl.load(other + (b * M + m[:, None]) * V + v[None, :], known, float("-inf")).to(tl.float32)
        peak = tl.load(other_peak + b * M + m, m < M, 0.0)
        weights = tl.load(per_z + (b * N + n[:, None]) * M + m[None, :], (n[:, None] < N) & (m[None, :] < M), 0.0)
        total = tl.dot(weights, tl.exp(logits - peak[:, None]), total, input_precision=_PRECISION)
    mask = (n[:, None] < N) & (v[None, :] < V)
    offsets = (b * N + n[:, None]) * V + v[None, :]
    mine = tl.load(own + offsets, mask, float("-inf")).to(tl.float32)
    gradient = -tl.exp(mine - tl.load(own_peak + b * N + n, n < N, 0.0)[:, None]) * total
    if tl.max(tl.load(has_lost + b * N + n, n < N, 0), 0) > 0:
        for m in range(M):
            logits = tl.load(other + (b * M + m) * V + v, v < V, float("-inf")).to(tl.float32)
            weights = tl.load(for_lost + (b * N + n) * M + m, n < N, 0.0)
            normaliser = tl.load(log_z + (b * N + n) * M + m, n < N, 0.0)
            softmax = tl.exp(mine + logits[None, :] - normaliser[:, None])
            gradient -= weights[:, None] * tl.where(weights[:, None] == 0.0, 0.0, softmax)
    tl.store(result + offsets, gradient.to(result.dtype.element_ty), mask)
