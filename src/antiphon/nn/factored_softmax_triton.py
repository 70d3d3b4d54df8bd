"""Triton kernels for the factored softmax: the vocabulary is processed in tiles, and nothing over it is stored.

    Z(i, j)  = sum_v exp(A[i, v] - peak_i) exp(C[j, v] - peak_j)          products of tiles, summed over tiles

Each program sums one part of the vocabulary with the peaks of that part, found while it is read, as in flash attention;
a second kernel adds up the parts. The gradients of both sides come from one kernel, which reads every logit once. Cells
whose sum underflows are recomputed inside the kernels, as an online log-sum-exp with a maximum per cell, so the result
is exact for any logits and needs no device sync. Logits may be float32, bfloat16 or float16; all sums are float32 and
rounded once, since the two terms of the gradient of a confident token, ``g`` and ``-g p``, nearly cancel.
Reference: ``nn/factored_softmax.py``.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad
from triton.tools.tensor_descriptor import TensorDescriptor

from antiphon.device import AMPERE, gpu_properties
from antiphon.nn.copying import CellCopies
from antiphon.nn.factored_softmax import CopyShare, divide_gradient, min_sum, read_tokens

_PROGRAMS = 512
"""Programs of a launch at least, so that every multiprocessor of a large GPU has several."""
_TILES_PER_PROGRAM = 20
"""Tiles of tokens that a program processes one after the other at most."""
_TOKENS = 64
"""Tokens of one tile."""
_MAX_ROWS = 64
"""Rows of one tile at most."""
_PIPELINE = {"num_warps": 4, "num_stages": 3}
"""Two tiles are loaded while one is computed, on GPUs with enough shared memory."""
_NO_PIPELINE = {"num_warps": 8, "num_stages": 1}
_PIPELINE_BYTES = 180 * 2**10
"""Shared memory that the largest tiles need for that."""
_PARTIAL_SUMS = 1024
"""Sums over parts of the vocabulary that one program adds up."""
_ALIGNMENT = 16
"""Bytes to which the memory of tiles is aligned."""
_UNIT = tl.constexpr(8)
"""Row lengths are a multiple of this, and kernels know it, so that loads can be wide."""
_LOWEST = tl.constexpr(torch.finfo(torch.float32).min)
"""The peak before any token: finite, since the difference of two infinities is not a number."""


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


class _Normalisers(NamedTuple):
    """``Z`` without the peaks, ``log Z`` with them, and the peaks."""

    z: Float[Tensor, "B I J"]
    log_z: Float[Tensor, "B I J"]
    source_peak: Float[Tensor, "B I"]
    target_peak: Float[Tensor, "B J"]


class _TokenGradients(NamedTuple):
    """What the gradients of the cells add to the logits of their tokens and of the class *copy*, -1 without copying."""

    targets: Int[Tensor, "B J"]
    at_token: Float[Tensor, "B I J"]
    source_copy: Float[Tensor, "B I"]
    target_copy: Float[Tensor, "B J"]
    copy_class: int

    @classmethod
    def of(
        cls, targets: Int[Tensor, "B J"], gradient: Float[Tensor, "B I J"], copied: CopyShare | None
    ) -> "_TokenGradients":
        """The gradients of the cells, divided between their tokens and copying."""
        at_token, at_copy = divide_gradient(gradient, copied)
        targets, at_token = targets.contiguous(), at_token.contiguous()
        if copied is None or at_copy is None:
            return cls(targets, at_token, at_token, at_token, -1)
        return cls(targets, at_token, at_copy.sum(2), at_copy.sum(1), copied.class_id)


class _LogTokenProbabilities(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, source_logits: Tensor, target_logits: Tensor, targets: Tensor, copies: CellCopies | None
    ) -> Tensor:
        source, target = aligned(source_logits), aligned(target_logits)
        ctx.V = source_logits.shape[2]
        normalisers = _normalisers(source, target)
        ctx.save_for_backward(source, target, targets, *normalisers)
        result, ctx.copied = read_tokens(source, target, targets, normalisers.log_z, copies)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        source, target, targets, *normalisers = ctx.saved_tensors
        at_tokens = _TokenGradients.of(targets, gradient, ctx.copied)
        for_source, for_target = _gradients(
            source, target, gradient.contiguous(), at_tokens, _Normalisers(*normalisers)
        )
        return for_source[:, :, : ctx.V], for_target[:, :, : ctx.V], None, None


def aligned(logits: Float[Tensor, "B N V"]) -> Float[Tensor, "B N W"]:
    """The logits in contiguous rows whose length is a multiple of ``_UNIT``; added tokens are impossible."""
    more = -logits.shape[2] % _UNIT.value
    rows = pad(logits, (0, more), value=float("-inf")) if more else logits.contiguous()
    return rows.clone() if rows.data_ptr() % _ALIGNMENT else rows


def _precision(device: torch.device) -> str:
    """How tiles are multiplied on tensor cores: three products that together keep single precision.

    Where PyTorch may round products to TF32, numbers are two parts of bfloat16, 16 bits, which is faster.
    """
    if torch.get_float32_matmul_precision() == "highest" or device.type != "cuda":
        return "tf32x3"
    return "bf16x3" if gpu_properties(device).major >= AMPERE else "tf32x3"


def _pipeline(device: torch.device) -> dict[str, int]:
    """How programs overlap loads and products: with several tiles in shared memory, or else by many warps."""
    if device.type != "cuda":
        return _NO_PIPELINE
    enough = gpu_properties(device).shared_memory_per_block_optin >= _PIPELINE_BYTES
    return _PIPELINE if enough else _NO_PIPELINE


def _normalisers(source: Float[Tensor, "B I V"], target: Float[Tensor, "B J V"]) -> _Normalisers:
    """The normaliser of every cell."""
    B, I, V = source.shape
    J = target.shape[1]
    rows, columns = _tile(I), _tile(J)
    tiles = triton.cdiv(I, rows) * triton.cdiv(J, columns)
    tiles_per_part = _tiles_per_part(V, B * tiles)
    parts = triton.cdiv(V, tiles_per_part * _TOKENS)
    sums, source_peaks, target_peaks = (
        torch.empty(parts, B, *cells, device=source.device) for cells in ((I, J), (I,), (J,))
    )
    _sum_tiles[(parts, B, tiles)](
        _tiles_of(source, rows), _tiles_of(target, columns), sums, source_peaks, target_peaks,
        B, I, J, V // _UNIT.value, tiles_per_part,
        ROWS=rows, COLUMNS=columns, TOKENS=_TOKENS, PRECISION=_precision(source.device),
        **_pipeline(source.device),
    )  # fmt: skip
    result = _Normalisers(*(torch.empty(B, *cells, device=source.device) for cells in ((I, J), (I, J), (I,), (J,))))
    parts_at_once = triton.next_power_of_2(parts)
    cells = max(1, _PARTIAL_SUMS // parts_at_once)
    _add_parts[(triton.cdiv(I * J, cells), B)](
        source, target, sums, source_peaks, target_peaks, *result, parts, I, J, V // _UNIT.value, min_sum(V),
        PARTS=parts_at_once, CELLS=cells, TOKENS=32,
    )  # fmt: skip
    return result


def _gradients(
    source: Float[Tensor, "B I V"],
    target: Float[Tensor, "B J V"],
    gradient: Float[Tensor, "B I J"],
    at_tokens: _TokenGradients,
    normalisers: _Normalisers,
) -> tuple[Float[Tensor, "B I V"], Float[Tensor, "B J V"]]:
    """The sums over the other side of ``gradient(i, j) (1[v = y_j] - softmax(i, j, v))``, for source and target."""
    B, I, V = source.shape
    J = target.shape[1]
    z, log_z, *peaks = normalisers
    results = torch.empty_like(source), torch.empty_like(target)
    rows, columns = _tile(I), _tile(J)
    tiles_per_part = _tiles_per_part(V, B)
    parts = triton.cdiv(V, tiles_per_part * _TOKENS)
    source_tiles, target_tiles = triton.cdiv(I, rows), triton.cdiv(J, columns)
    shape = I, J, V // _UNIT.value, tiles_per_part, min_sum(V)
    sizes = {"ROWS": rows, "COLUMNS": columns, "TOKENS": _TOKENS, "PRECISION": _precision(source.device)}
    fits = source_tiles == target_tiles == 1
    if fits:
        given = _tiles_of(source, rows), _tiles_of(target, columns)
        stored = _tiles_of(results[0], rows), _tiles_of(results[1], columns)
        _gradient_tiles[(parts, B)](*given, *stored, gradient, z, *peaks, *shape, **sizes, **_pipeline(source.device))
    _gradient_rows[(parts, B, source_tiles + target_tiles)](
        source, target, *results, gradient, *at_tokens, z, *peaks, log_z, *shape, source_tiles,
        **sizes, ONLY_REST=fits, num_stages=1,
    )  # fmt: skip
    return results


def _tiles_per_part(V: int, programs: int) -> int:
    """Tiles of tokens for each program, where this many programs are needed for every part of the vocabulary."""
    parts = max(1, _PROGRAMS // programs)
    return min(_TILES_PER_PROGRAM, int(triton.cdiv(triton.cdiv(V, _TOKENS), parts)))


def _tiles_of(logits: Float[Tensor, "B N V"], rows: int) -> TensorDescriptor:
    """The logits for loads and stores of whole tiles; outside of them, tiles are 0, and nothing is stored."""
    return TensorDescriptor.from_tensor(logits, [1, rows, _TOKENS])


def _tile(length: int) -> int:
    """Rows of a tile; a product of tiles needs at least sixteen."""
    return min(_MAX_ROWS, max(16, 1 << (length - 1).bit_length()))


@triton.jit(do_not_specialize=["B", "I", "J", "units", "tiles_per_part"])
def _sum_tiles(
    source, target, sums, source_peaks, target_peaks, B, I, J, units, tiles_per_part,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, TOKENS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Z(i, j) over one part of the vocabulary, for one tile of cells, and the peaks of its rows in that part."""
    V = units * _UNIT
    b = tl.program_id(1)
    tiles_across = tl.cdiv(J, COLUMNS)
    first_i = tl.program_id(2) // tiles_across * ROWS
    first_j = tl.program_id(2) % tiles_across * COLUMNS
    peak_i = tl.full((ROWS,), _LOWEST, tl.float32)
    peak_j = tl.full((COLUMNS,), _LOWEST, tl.float32)
    z = tl.zeros((ROWS, COLUMNS), tl.float32)
    first = tl.program_id(0) * tiles_per_part
    for tile in range(first, min(first + tiles_per_part, tl.cdiv(V, TOKENS))):
        known = tile * TOKENS + tl.arange(0, TOKENS)[None, :] < V
        a = source.load([b, first_i, tile * TOKENS]).reshape(ROWS, TOKENS).to(tl.float32)
        c = target.load([b, first_j, tile * TOKENS]).reshape(COLUMNS, TOKENS).to(tl.float32)
        a = tl.where(known, a, float("-inf"))
        c = tl.where(known, c, float("-inf"))
        higher_i = tl.maximum(peak_i, tl.max(a, 1))
        higher_j = tl.maximum(peak_j, tl.max(c, 1))
        z *= tl.exp(peak_i - higher_i)[:, None] * tl.exp(peak_j - higher_j)[None, :]
        exp_a = tl.exp(a - higher_i[:, None])
        exp_c = tl.exp(c - higher_j[:, None])
        z = tl.dot(exp_a, tl.trans(exp_c), z, input_precision=PRECISION)
        peak_i, peak_j = higher_i, higher_j
    i = first_i + tl.arange(0, ROWS)
    j = first_j + tl.arange(0, COLUMNS)
    row = tl.program_id(0).to(tl.int64) * B + b
    tl.store(source_peaks + row * I + i, peak_i, i < I)
    tl.store(target_peaks + row * J + j, peak_j, j < J)
    tl.store(sums + (row * I + i[:, None]) * J + j[None, :], z, (i[:, None] < I) & (j[None, :] < J))


@triton.jit(do_not_specialize=["parts", "I", "J", "units"])
def _add_parts(
    source, target, sums, source_peaks, target_peaks, z, log_z, source_peak, target_peak, parts, I, J, units, least,
    PARTS: tl.constexpr, CELLS: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Z(i, j) over the whole vocabulary for some cells, its logarithm, and the peaks; recomputes underflowed cells."""
    V = units * _UNIT
    b = tl.program_id(1).to(tl.int64)
    cell = tl.program_id(0) * CELLS + tl.arange(0, CELLS)
    i, j = cell // J, cell % J
    inside = cell < I * J
    part = tl.arange(0, PARTS)[:, None]
    row = part * tl.num_programs(1) + b
    known = (part < parts) & inside[None, :]
    peaks_i = tl.load(source_peaks + row * I + i[None, :], known, _LOWEST)
    peaks_j = tl.load(target_peaks + row * J + j[None, :], known, _LOWEST)
    terms = tl.load(sums + row * I * J + cell[None, :], known, 0.0)
    peak_i, peak_j = tl.max(peaks_i, 0), tl.max(peaks_j, 0)
    total = tl.sum(terms * tl.exp(peaks_i - peak_i[None, :]) * tl.exp(peaks_j - peak_j[None, :]), 0)
    log_total = tl.log(total) + peak_i + peak_j
    lost = inside & (total < least)
    if tl.max(lost.to(tl.int32), 0) > 0:
        exact = _log_sum_exp(source + (b * I + i) * V, target + (b * J + j) * V, lost, V, CELLS, TOKENS)
        log_total = tl.where(lost, exact, log_total)
    tl.store(z + b * I * J + cell, total, inside)
    tl.store(log_z + b * I * J + cell, log_total, inside)
    tl.store(source_peak + b * I + i, peak_i, inside & (j == 0))
    tl.store(target_peak + b * J + j, peak_j, inside & (i == 0))


@triton.jit
def _log_sum_exp(source_rows, target_rows, mask, V, CELLS: tl.constexpr, TOKENS: tl.constexpr):
    """log sum_v exp(A[i, v] + C[j, v]) of some cells, with a maximum per cell."""
    peak = tl.full((CELLS,), _LOWEST, tl.float32)
    total = tl.zeros((CELLS,), tl.float32)
    for start in range(0, V, TOKENS):
        v = start + tl.arange(0, TOKENS)[None, :]
        known = mask[:, None] & (v < V)
        logit = tl.load(source_rows[:, None] + v, known, float("-inf")).to(tl.float32)
        logit += tl.load(target_rows[:, None] + v, known, float("-inf")).to(tl.float32)
        higher = tl.maximum(peak, tl.max(logit, 1))
        total = total * tl.exp(peak - higher) + tl.sum(tl.exp(logit - higher[:, None]), 1)
        peak = higher
    return peak + tl.log(total)


@triton.jit
def _load_weights(gradient, z, cells, inside, least):
    """-gradient(i, j) / Z(i, j) of some cells, 0 where Z(i, j) has underflowed."""
    sums = tl.load(z + cells, inside, 1.0)
    lost = sums < least
    return tl.where(lost, 0.0, -tl.load(gradient + cells, inside, 0.0) / tl.where(lost, 1.0, sums))


@triton.jit(do_not_specialize=["I", "J", "units", "tiles_per_part"])
def _gradient_tiles(
    source, target, for_source, for_target, gradient, z, source_peak, target_peak, I, J, units, tiles_per_part, least,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, TOKENS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """-exp(A - peak) (gradient / Z) exp(C - peak) over one part of the vocabulary, and the same transposed.

    What it stores for tokens of the targets and for underflowed cells is replaced by ``_gradient_rows``.
    """
    b = tl.program_id(1)
    i, j = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    peak_i = tl.load(source_peak + b * I + i, i < I, float("inf"))[:, None]
    peak_j = tl.load(target_peak + b * J + j, j < J, float("inf"))[:, None]
    cells = (b.to(tl.int64) * I + i[:, None]) * J + j[None, :]
    weights = _load_weights(gradient, z, cells, (i[:, None] < I) & (j[None, :] < J), least)
    transposed = tl.trans(weights)
    first = tl.program_id(0) * tiles_per_part
    for tile in range(first, min(first + tiles_per_part, tl.cdiv(units * _UNIT, TOKENS))):
        place = [b, 0, tile * TOKENS]
        exp_a = tl.exp(source.load(place).reshape(ROWS, TOKENS).to(tl.float32) - peak_i)
        exp_c = tl.exp(target.load(place).reshape(COLUMNS, TOKENS).to(tl.float32) - peak_j)
        for_a = exp_a * tl.dot(weights, exp_c, input_precision=PRECISION)
        for_c = exp_c * tl.dot(transposed, exp_a, input_precision=PRECISION)
        for_source.store(place, for_a.to(for_source.dtype).reshape(1, ROWS, TOKENS))
        for_target.store(place, for_c.to(for_target.dtype).reshape(1, COLUMNS, TOKENS))


@triton.jit(do_not_specialize=["copy_class", "I", "J", "units", "tiles_per_part", "source_tiles"])
def _gradient_rows(
    source, target, for_source, for_target, gradient, targets, at_token, source_copy, target_copy, copy_class,
    z, source_peak, target_peak, log_z, I, J, units, tiles_per_part, least, source_tiles,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, TOKENS: tl.constexpr, PRECISION: tl.constexpr, ONLY_REST: tl.constexpr,
):  # fmt: skip
    """The whole gradients of one tile of source or target rows, of any number, over one part of the vocabulary.

    ``ONLY_REST``: only those that ``_gradient_tiles`` has not, where there is one tile of rows on each side.
    """
    V = units * _UNIT
    b = tl.program_id(1).to(tl.int64)
    source += b * I * V
    target += b * J * V
    for_source += b * I * V
    for_target += b * J * V
    gradient += b * I * J
    targets += b * J
    at_token += b * I * J
    source_copy += b * I
    target_copy += b * J
    z += b * I * J
    log_z += b * I * J
    source_peak += b * I
    target_peak += b * J
    first = tl.program_id(0) * tiles_per_part
    last = min(first + tiles_per_part, tl.cdiv(V, TOKENS))
    tile = tl.program_id(2)
    if tile < source_tiles:
        i = tile * ROWS + tl.arange(0, ROWS)[:, None]
        _store_gradients(
            source, target, for_source, gradient, targets, at_token, source_copy, copy_class,
            z, source_peak, target_peak, log_z, i, I, J, J, 1, V, least, first, last,
            ROWS, COLUMNS, TOKENS, PRECISION, ONLY_REST, False,
        )  # fmt: skip
    else:
        j = (tile - source_tiles) * COLUMNS + tl.arange(0, COLUMNS)[:, None]
        _store_gradients(
            target, source, for_target, gradient, targets, at_token, target_copy, copy_class,
            z, target_peak, source_peak, log_z, j, J, I, 1, J, V, least, first, last,
            COLUMNS, ROWS, TOKENS, PRECISION, ONLY_REST, True,
        )  # fmt: skip


@triton.jit
def _store_gradients(
    own, other, result, gradient, targets, at_token, own_copy, copy_class,
    z, own_peak, other_peak, log_z, n, N, M, n_stride, m_stride, V, least, first, last,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, TOKENS: tl.constexpr, PRECISION: tl.constexpr, ONLY_REST: tl.constexpr,
    IS_TARGET: tl.constexpr,
):  # fmt: skip
    """Stores the gradients of rows ``n`` of one side in some tiles of tokens."""
    lowest = float("inf")
    for start in range(0, M, COLUMNS):
        m = start + tl.arange(0, COLUMNS)[None, :]
        sums = tl.load(z + n * n_stride + m * m_stride, (n < N) & (m < M), float("inf"))
        lowest = tl.minimum(lowest, tl.min(tl.min(sums, 1), 0))
    has_lost = lowest < least
    if ONLY_REST:
        j = tl.arange(0, ROWS if IS_TARGET else COLUMNS)
        token = tl.load(targets + j, j < (N if IS_TARGET else M), copy_class)
    for tile in range(first, last):
        is_wanted = True
        if ONLY_REST:
            has_token = tl.max((token // TOKENS == tile).to(tl.int32), 0) > 0
            is_wanted = has_lost | has_token | (copy_class // TOKENS == tile)
        if is_wanted:
            total = _sum_gradients(
                own, other, gradient, targets, at_token, own_copy, copy_class,
                z, own_peak, other_peak, log_z, n, N, M, n_stride, m_stride, V, least, tile, has_lost,
                ROWS, COLUMNS, TOKENS, PRECISION, IS_TARGET,
            )  # fmt: skip
            v = tile * TOKENS + tl.arange(0, TOKENS)[None, :]
            tl.store(result + n.to(tl.int64) * V + v, total.to(result.dtype.element_ty), (n < N) & (v < V))


@triton.jit
def _sum_gradients(
    own, other, gradient, targets, at_token, own_copy, copy_class,
    z, own_peak, other_peak, log_z, n, N, M, n_stride, m_stride, V, least, tile, has_lost,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, TOKENS: tl.constexpr, PRECISION: tl.constexpr, IS_TARGET: tl.constexpr,
):  # fmt: skip
    """The gradients of rows ``n`` of one side in one tile of tokens: at tokens, of products, of underflowed cells."""
    v = tile * TOKENS + tl.arange(0, TOKENS)[None, :]
    mine = tl.load(own + n.to(tl.int64) * V + v, (n < N) & (v < V), float("-inf")).to(tl.float32)
    at_tokens = tl.where(v == copy_class, tl.load(own_copy + n, (n < N) & (copy_class >= 0), 0.0), 0.0)
    products = tl.zeros((ROWS, TOKENS), tl.float32)
    for start in range(0, M, COLUMNS):
        m = start + tl.arange(0, COLUMNS)[None, :]
        cells, inside = n * n_stride + m * m_stride, (n < N) & (m < M)
        weights = _load_weights(gradient, z, cells, inside, least)
        gains = tl.load(at_token + cells, inside, 0.0)
        m = start + tl.arange(0, COLUMNS)[:, None]
        logits = tl.load(other + m.to(tl.int64) * V + v, (m < M) & (v < V), float("-inf")).to(tl.float32)
        exp = tl.exp(logits - tl.load(other_peak + m, m < M, 0.0))
        products = tl.dot(weights, exp, products, input_precision=PRECISION)
        if IS_TARGET:
            is_token = v == tl.load(targets + n, n < N, -1)
            at_tokens += tl.where(is_token, tl.sum(gains, 1)[:, None], 0.0)
        else:
            is_token = v == tl.load(targets + m, m < M, -1)
            at_tokens = tl.dot(gains, is_token.to(tl.float32), at_tokens, input_precision="tf32x3")
    total = at_tokens + products * tl.exp(mine - tl.load(own_peak + n, n < N, 0.0))
    if has_lost:
        row = other + v
        for m in range(M):
            cells = n * n_stride + m * m_stride
            lost = (n < N) & (tl.load(z + cells, n < N, float("inf")) < least)
            weights = tl.load(gradient + cells, lost, 0.0)
            logits = mine + tl.load(row, v < V, float("-inf")).to(tl.float32)
            softmax = tl.exp(logits - tl.load(log_z + cells, lost, 0.0))
            total -= weights * tl.where(weights == 0.0, 0.0, softmax)
            row += V
    return total
