"""Triton kernels for decoding steps: in which row the next token is written, its probabilities, and the best tokens.

    Z(i, n)      = sum_v E[i, v] exp(C[n, v] - peak_n)                   E = exp(A - peak), computed once per source
    log P(n, v)  = log sum_i (weight(n, i) / Z(i, n)) E[i, v] + C[n, v] - peak_n

One launch sums ``Z`` over parts of the vocabulary, one adds up the parts and divides the weights, and one sums over
positions and takes the logarithm. Cells whose ``Z`` underflows are recomputed token by token, so the result is exact
for any logits. Products are in single precision, without tensor cores: a tile has few rows and is read once.

Before that, one program for each prefix, in double precision, finds in which row its next token is written::

    odds(i)     = v . tanh(a_i + c) + d                                  of writing in row i
    arrive(i)   in proportion to exp(log_weight(i) + A[i, y])            y, the last token, was written in row i
    write(i)    = emit(i) * sum over r <= i of arrive(r) * product of read(r..i-1)

``N = B * K`` prefixes are sorted by source, ``K`` each. References: ``factored_softmax.py`` and, for rows,
``models/transducer.py``.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from antiphon.lattice.marginal_triton import log_add
from antiphon.nn.factored_softmax import min_sum
from antiphon.nn.factored_softmax_triton import aligned

_PROGRAMS = 2048
"""Programs of a launch at least, so that every multiprocessor of a large GPU has several."""
_UNIT = tl.constexpr(8)
"""Row lengths are a multiple of this, and kernels know it, so that loads can be wide."""
_TILE = 2048
"""Elements that a program computes at once."""
_MIXED_TOKENS = 128
"""Tokens of a tile of probabilities."""
_BLOCK = 64
"""Tokens per block: a block is searched only if its maximum is among the best."""


def mix_tokens(
    source: Float[Tensor, "B I W"],
    source_exp: Float[Tensor, "B I W"],
    source_peak: Float[Tensor, "B I"],
    target_logits: Float[Tensor, "N V"],
    log_weight: Float[Tensor, "N I"],
) -> tuple[Float[Tensor, "N V"], Float[Tensor, "N I"]]:
    """``log sum_i weight(n, i) softmax(A[i] + C[n])``, and the log normaliser of every cell.

    ``source`` and ``source_exp`` are aligned already. A source none of whose prefixes has any weight is skipped, and
    its normalisers are ``-inf``: a search may be done with some sources and not with others.
    """
    B, I, V = source.shape
    N = len(target_logits)
    target, peak = _with_peak(target_logits)
    per_z, for_lost = (peak.new_empty(N, I) for _ in range(2))
    highest, has_lost = log_weight.amax(1).float(), torch.empty(N, dtype=torch.int32, device=peak.device)
    log_z = _cells(source, source_exp, source_peak, target, peak, highest, log_weight, per_z, for_lost, has_lost)
    log_prob, prefixes = torch.empty(N, V, device=target.device), _tile(N // B)
    _mix[(B, triton.cdiv(N // B, prefixes), triton.cdiv(V, _MIXED_TOKENS))](
        source, source_exp, target, peak, per_z, for_lost, log_z, highest, has_lost, log_prob,
        N // B, I, V // _UNIT.value, PREFIXES=prefixes, ROWS=_rows(I), TOKENS=_MIXED_TOKENS, num_stages=1,
    )  # fmt: skip
    return log_prob[:, : target_logits.shape[1]], log_z


def log_normalisers(
    source: Float[Tensor, "B I W"],
    source_exp: Float[Tensor, "B I W"],
    source_peak: Float[Tensor, "B I"],
    target_logits: Float[Tensor, "N V"],
) -> Float[Tensor, "N I"]:
    """The log normaliser of every cell."""
    target, peak = _with_peak(target_logits)
    return _cells(source.contiguous(), source_exp.contiguous(), source_peak.contiguous(), target, peak, peak)


def _with_peak(target_logits: Float[Tensor, "N V"]) -> tuple[Float[Tensor, "N W"], Float[Tensor, " N"]]:
    return (target := aligned(target_logits[None])[0]), target.amax(1).float()


def _cells(
    source: Tensor,
    source_exp: Tensor,
    source_peak: Tensor,
    target: Tensor,
    peak: Tensor,
    highest: Tensor,
    *weights: Tensor,
) -> Float[Tensor, "N I"]:
    """The log normaliser of every cell; with weights, fills the tensors that follow them."""
    B, I, V = source.shape
    N, rows = len(target), triton.next_power_of_2(I)
    sums = _sums(source_exp, target, peak, highest)
    log_z = peak.new_empty(N, I)
    _weigh[(N,)](
        source, source_peak, target, peak, highest, sums, log_z, *(weights or [peak] * 4), N, N // B, I, V, len(sums),
        min_sum(V), WEIGHTED=len(weights) > 0, ROWS=rows, TOKENS=max(1, _TILE // rows),
    )  # fmt: skip
    return log_z


def _sums(
    source_exp: Float[Tensor, "B I W"],
    target: Float[Tensor, "N W"],
    peak: Float[Tensor, " N"],
    highest: Float[Tensor, " N"],
) -> Float[Tensor, "parts N I"]:
    """``Z`` of every cell over each part of the vocabulary; 0 for prefixes whose weights are all 0."""
    B, I, V = source_exp.shape
    K = len(target) // B
    prefixes = _tile(K)
    multiplies_tiles = prefixes == 16
    rows, tokens = (_rows(I), 32) if multiplies_tiles else (8, min(1024, _TILE // prefixes))
    tiles = triton.cdiv(I, rows) * triton.cdiv(K, prefixes)
    parts = max(1, min(triton.cdiv(V, 4 * tokens), triton.cdiv(_PROGRAMS, B * tiles)))
    tokens_per_part = triton.cdiv(triton.cdiv(V, parts), tokens) * tokens
    parts = triton.cdiv(V, tokens_per_part)
    sums = torch.empty(parts, B * K, I, device=target.device)
    _sum_parts[(B, tiles, parts)](
        source_exp, target, peak, highest, sums, B, K, I, V // _UNIT.value, tokens_per_part,
        ROWS=rows, PREFIXES=prefixes, TOKENS=tokens, TILES=multiplies_tiles,
        num_warps=1 if multiplies_tiles else 4,
    )  # fmt: skip
    return sums


def top_tokens(scores: Float[Tensor, "N V"], width: int) -> tuple[Float[Tensor, "N W"], Int[Tensor, "N W"]]:
    """The ``width`` highest scores and their indices, found in the ``width`` blocks with the highest maxima.

    Needs at least ``width`` blocks. NaN counts as ``-inf``.
    """
    N, V = scores.shape
    blocks, at_once = triton.cdiv(V, _BLOCK), 32
    maxima = torch.empty(N, blocks, device=scores.device)
    _block_maxima[(N, triton.cdiv(blocks, at_once))](scores, maxima, scores.stride(0), V, blocks, at_once, _BLOCK)
    best, index = scores.new_empty(N, width), torch.empty(N, width, dtype=torch.int64, device=scores.device)
    sizes = {"WIDTH": triton.next_power_of_2(width), "BLOCKS": triton.next_power_of_2(blocks), "BLOCK": _BLOCK}
    _best_of_blocks[(N,)](scores, maxima, best, index, scores.stride(0), V, blocks, width, **sizes, num_warps=2)
    return best, index


def _rows(I: int) -> int:
    """Rows of a tile of a product."""
    return 16 if I <= 16 else 32


def _tile(K: int) -> int:
    """Prefixes of a tile; a product of tiles needs sixteen, fewer are multiplied one by one."""
    return 16 if K > 4 else 1 << (K - 1).bit_length()


@triton.jit(do_not_specialize=["B", "K", "I", "units", "tokens_per_part"])
def _sum_parts(
    source_exp,
    target,
    target_peak,
    highest,
    sums,
    B,
    K,
    I,
    units,
    tokens_per_part,
    ROWS: tl.constexpr,
    PREFIXES: tl.constexpr,
    TOKENS: tl.constexpr,
    TILES: tl.constexpr,
):
    """Z(i, n) over one part of the vocabulary, for some rows and prefixes of a source; lanes add up at the end."""
    V = units * _UNIT
    b = tl.program_id(0).to(tl.int64)
    tiles_across = tl.cdiv(K, PREFIXES)
    i = tl.program_id(1) // tiles_across * ROWS + tl.arange(0, ROWS)
    k = tl.program_id(1) % tiles_across * PREFIXES + tl.arange(0, PREFIXES)
    part = tl.program_id(2).to(tl.int64)
    first = tl.program_id(2) * tokens_per_part
    peak = tl.load(target_peak + b * K + k, k < K, 0.0)[:, None]
    has_mass = tl.max(tl.load(highest + b * K + k, k < K, float("-inf")), 0) > float("-inf")
    stop = tl.where(has_mass, min(first + tokens_per_part, V), first)
    z = tl.zeros((ROWS, PREFIXES), tl.float32)
    by_lane = tl.zeros((ROWS, 1 if TILES else PREFIXES, TOKENS), tl.float32)
    for start in tl.range(first, stop, TOKENS, num_stages=4 if TILES else 1):
        v = start + tl.arange(0, TOKENS)[None, :]
        e = tl.load(source_exp + (b * I + i[:, None]) * V + v, (i[:, None] < I) & (v < V), 0.0)
        c = tl.load(target + (b * K + k[:, None]) * V + v, (k[:, None] < K) & (v < V), float("-inf")).to(tl.float32)
        if TILES:
            z = tl.dot(e, tl.trans(tl.exp(c - peak)), z, input_precision="tf32x3")
        else:
            by_lane += e[:, None, :] * tl.exp(c - peak)[None, :, :]
    if not TILES:
        z = tl.sum(by_lane, 2)
    cells = ((part * B + b) * K + k[None, :]) * I + i[:, None]
    tl.store(sums + cells, z, (i[:, None] < I) & (k[None, :] < K))


@triton.jit(do_not_specialize=["N", "K", "I", "V", "parts"])
def _weigh(
    source,
    source_peak,
    target,
    target_peak,
    highest,
    sums,
    log_z,
    log_weight,
    per_z,
    for_lost,
    has_lost,
    N,
    K,
    I,
    V,
    parts,
    least,
    WEIGHTED: tl.constexpr,
    ROWS: tl.constexpr,
    TOKENS: tl.constexpr,
):
    """log Z(i, n) and weight(n, i) / Z(i, n) of one prefix; weights of underflowed cells are stored apart."""
    n = tl.program_id(0).to(tl.int64)
    b = n // K
    i = tl.arange(0, ROWS)
    inside = i < I
    z = tl.zeros((ROWS,), tl.float32)
    for part in range(parts):
        z += tl.load(sums + (part * N.to(tl.int64) + n) * I + i, inside, 0.0)
    own_peak = tl.load(target_peak + n)
    normaliser = tl.log(z) + tl.load(source_peak + b * I + i, inside, 0.0) + own_peak
    own_highest = tl.load(highest + n)
    lost = inside & (z < tl.where(own_highest > float("-inf"), least, 0.0))
    any_lost = tl.max(lost.to(tl.int32), 0)
    if any_lost > 0:
        peak = tl.full((ROWS,), float("-inf"), tl.float32)
        total = tl.zeros((ROWS,), tl.float32)
        for first in range(0, V, TOKENS):
            v = first + tl.arange(0, TOKENS)
            a = tl.load(source + (b * I + i[:, None]) * V + v[None, :], lost[:, None] & (v < V)[None, :], float("-inf"))
            c = tl.load(target + n * V + v, v < V, float("-inf")).to(tl.float32)
            logits = a.to(tl.float32) + c[None, :]
            higher = tl.maximum(peak, tl.max(logits, 1))
            base = tl.where(higher == float("-inf"), 0.0, higher)
            total = total * tl.exp(peak - base) + tl.sum(tl.exp(logits - base[:, None]), 1)
            peak = higher
        normaliser = tl.where(lost, peak + tl.log(total), normaliser)
    tl.store(log_z + n * I + i, normaliser, inside)
    if WEIGHTED:
        log_weights = tl.load(log_weight + n * I + i, inside, float("-inf"))
        weight = tl.exp((log_weights - tl.maximum(own_highest, -3e38)).to(tl.float32))
        tl.store(per_z + n * I + i, tl.where(lost, 0.0, weight / z), inside)
        tl.store(for_lost + n * I + i, tl.where(lost, weight, 0.0), inside)
        tl.store(has_lost + n, any_lost)


@triton.jit(do_not_specialize=["K", "I", "units"])
def _mix(
    source,
    source_exp,
    target,
    target_peak,
    per_z,
    for_lost,
    log_z,
    highest,
    has_lost,
    log_prob,
    K,
    I,
    units,
    PREFIXES: tl.constexpr,
    ROWS: tl.constexpr,
    TOKENS: tl.constexpr,
):
    """log P of some tokens after some prefixes of a source; underflowed cells one by one."""
    V = units * _UNIT
    b = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * PREFIXES + tl.arange(0, PREFIXES)
    v = tl.program_id(2) * TOKENS + tl.arange(0, TOKENS)
    n = b * K + k
    own_highest = tl.load(highest + n, k < K, float("-inf"))
    stop = tl.where(tl.max(own_highest, 0) > float("-inf"), I, 0)
    total = tl.zeros((PREFIXES, TOKENS), tl.float32)
    if PREFIXES < 16:
        for i in range(stop):
            e = tl.load(source_exp + (b * I + i) * V + v, v < V, 0.0)
            total += tl.load(per_z + n * I + i, k < K, 0.0)[:, None] * e[None, :]
    else:
        for first in range(0, stop, ROWS):
            i = first + tl.arange(0, ROWS)
            rows = (b * I + i[:, None]) * V + v[None, :]
            e = tl.load(source_exp + rows, (i < I)[:, None] & (v < V)[None, :], 0.0)
            w = tl.load(per_z + n[:, None] * I + i[None, :], (k < K)[:, None] & (i < I)[None, :], 0.0)
            total = tl.dot(w, e, total, input_precision="tf32x3")
    mask = (k < K)[:, None] & (v < V)[None, :]
    offsets = n[:, None] * V + v[None, :]
    c = tl.load(target + offsets, mask, float("-inf")).to(tl.float32)
    own = c - tl.load(target_peak + n, k < K, 0.0)[:, None]
    result = tl.log(total) + own
    if tl.max(tl.load(has_lost + n, k < K, 0), 0) > 0:
        total *= tl.exp(own)
        for i in range(I):
            logits = c + tl.load(source + (b * I + i) * V + v, v < V, float("-inf")).to(tl.float32)[None, :]
            weight = tl.load(for_lost + n * I + i, k < K, 0.0)[:, None]
            softmax = tl.exp(logits - tl.load(log_z + n * I + i, k < K, 0.0)[:, None])
            total += tl.where(weight == 0.0, 0.0, weight * softmax)
        result = tl.log(total)
    tl.store(log_prob + offsets, result + own_highest[:, None], mask)


@triton.jit
def _block_maxima(scores, maxima, stride, V, blocks, AT_ONCE: tl.constexpr, BLOCK: tl.constexpr):
    """The highest score of each of some blocks of tokens."""
    n = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1) * AT_ONCE + tl.arange(0, AT_ONCE)
    v = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    values = tl.load(scores + n * stride + v, v < V, float("-inf"))
    tl.store(maxima + n * blocks + block, tl.max(values, 1), block < blocks)


@triton.jit
def _take_best(values, indices, rank, found, found_index):
    """Stores the highest value and its index at a rank; the values without it."""
    best, at = tl.max(values, 0, return_indices=True)
    index = tl.sum(tl.where(tl.arange(0, values.shape[0]) == at, indices, 0), 0)
    is_here = tl.arange(0, found.shape[0]) == rank
    left = tl.where(tl.arange(0, values.shape[0]) == at, float("-inf"), values)
    return left, tl.where(is_here, best, found), tl.where(is_here, index, found_index)


@triton.jit
def _best_of_blocks(
    scores,
    maxima,
    best,
    index,
    stride,
    V,
    blocks,
    width,
    WIDTH: tl.constexpr,
    BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The highest scores after one prefix, best first; ``-inf`` is replaced by the lowest number until the end."""
    n = tl.program_id(0).to(tl.int64)
    lowest: tl.constexpr = -3.4e38
    block, rank = tl.arange(0, BLOCKS), tl.arange(0, WIDTH)
    values = tl.maximum(tl.load(maxima + n * blocks + block, block < blocks, float("-inf")), lowest)
    values = tl.where(block < blocks, values, float("-inf"))
    chosen, found = tl.zeros((WIDTH,), tl.int32), tl.zeros((WIDTH,), tl.float32)
    for k in range(width):
        values, found, chosen = _take_best(values, block, k, found, chosen)
    v = tl.reshape(chosen[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :], (WIDTH * BLOCK,))
    exists = tl.reshape((rank < width)[:, None] & (tl.arange(0, BLOCK) >= 0)[None, :], (WIDTH * BLOCK,)) & (v < V)
    values = tl.maximum(tl.load(scores + n * stride + v, exists, float("-inf")), lowest)
    values = tl.where(exists, values, float("-inf"))
    indices = tl.zeros((WIDTH,), tl.int32)
    for k in range(width):
        values, found, indices = _take_best(values, v, k, found, indices)
    found = tl.where(found <= lowest, float("-inf"), found)
    tl.store(best + n * width + rank, found, rank < width)
    tl.store(index + n * width + rank, indices.to(tl.int64), rank < width)


def log_write(
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
    """``log write(n, i)`` after one more token of each prefix; prefixes are sorted by source, the same number for each.

    A prefix whose token is ``padding`` is empty and gets ``-inf``.
    """
    B, I, V = logits.shape
    N, T = target_units.shape
    result, rows = torch.empty_like(log_weight), triton.next_power_of_2(I)
    _log_write[(N,)](
        log_weight, logits, tokens, source_units.contiguous(), target_units.contiguous(), *readout, lengths, result,
        N // B, I, V, T, padding, FORCED=final_write_forced, ROWS=rows, UNITS=max(1, _TILE // rows),
    )  # fmt: skip
    return result


@triton.jit(do_not_specialize=["K", "I", "V", "T", "padding"])
def _log_write(
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
    """log write(i) of one prefix; tanh(x) = 1 - 2 / (1 + exp(2 x))."""
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
    log_read = tl.where(inside, -tl.maximum(odds, 0.0) - softplus, 0.0)
    length = tl.load(lengths + b)
    if FORCED:
        log_emit = tl.where(i == length - 1, 0.0, log_emit)
    token = tl.load(tokens + n)
    row_logits = tl.load(logits + (b * I + i) * V + token, inside, 0.0).to(tl.float64)
    written = tl.load(log_weight + n * I + i, inside, float("-inf")) + row_logits
    peak = tl.max(written, 0)
    log_arrive = written - peak - tl.log(tl.sum(tl.exp(written - peak), 0))
    before = tl.cumsum(log_read, 0) - log_read
    log_forward = before + tl.associative_scan(log_arrive - before, 0, log_add)
    exists = (i < length) & (token != padding)
    tl.store(result + n * I + i, tl.where(exists, log_forward + log_emit, float("-inf")), inside)
