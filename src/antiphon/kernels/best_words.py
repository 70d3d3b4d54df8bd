"""The most probable words of many cells as one Triton kernel: one program for each pair of a cell and a prefix.

A program has a number of lanes, and word ``v`` belongs to lane ``v mod LANES``. One pass over the vocabulary gives the
normaliser, as an online log-sum-exp in every lane, and the best word of every lane. The best of these is the best of
all; its lane alone is read again for the word that comes next in it, and so on. Words of equal score come in the order
of their numbers. Pairs that are not wanted cost nothing. Reference: ``nn/best_words.py``.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Bool, Float, Int
from torch import Tensor

_MOST_LANES = 1024


def best_words(
    source_logits: Float[Tensor, "C V"],
    target_logits: Float[Tensor, "N V"],
    cell: Int[Tensor, " M"],
    prefix: Int[Tensor, " M"],
    wanted: Bool[Tensor, " M"],
    *,
    width: int,
    first_word: int,
    end: int,
) -> tuple[Float[Tensor, "M W"], Int[Tensor, "M W"], Float[Tensor, " M"]]:
    """Log probabilities and numbers of the ``width`` best words of every wanted pair, and of its end symbol."""
    M, V = len(cell), source_logits.shape[1]
    dtype = torch.promote_types(source_logits.dtype, torch.float32)
    log_prob = torch.zeros(M, width, dtype=dtype, device=cell.device)
    token, log_end = torch.zeros_like(log_prob, dtype=torch.long), torch.zeros_like(cell, dtype=dtype)
    lanes = min(_MOST_LANES, triton.next_power_of_2(V))
    _best[(M,)](
        source_logits.contiguous(),
        target_logits.contiguous(),
        cell,
        prefix,
        wanted,
        log_prob,
        token,
        log_end,
        V,
        width,
        first_word,
        end,
        LANES=lanes,
        WORDS_OF_LANE=triton.next_power_of_2(triton.cdiv(V, lanes)),
    )
    return log_prob, token, log_end


@triton.jit
def _logits(a, c, v, V, dtype: tl.constexpr):
    """A[v] + C[v] in at least single precision; impossible beyond the vocabulary."""
    return tl.load(a + v, v < V, float("-inf")).to(dtype) + tl.load(c + v, v < V, 0.0).to(dtype)


@triton.jit(do_not_specialize=["V", "width", "first_word", "end"])
def _best(
    source,
    target,
    cell,
    prefix,
    wanted,
    log_prob,
    token,
    log_end,
    V,
    width,
    first_word,
    end,
    LANES: tl.constexpr,
    WORDS_OF_LANE: tl.constexpr,
):
    """The best words of one pair, their log probabilities and that of the end symbol."""
    m = tl.program_id(0).to(tl.int64)
    dtype: tl.constexpr = log_prob.dtype.element_ty
    if tl.load(wanted + m):
        a = source + tl.load(cell + m) * V
        c = target + tl.load(prefix + m) * V
        lane = tl.arange(0, LANES)
        peak = tl.full((LANES,), float("-inf"), dtype)
        total = tl.zeros((LANES,), dtype)
        best = tl.full((LANES,), float("-inf"), dtype)
        place = tl.full((LANES,), 0, tl.int32) + V
        for first in range(0, V, LANES):
            v = first + lane
            logit = _logits(a, c, v, V, dtype)
            higher = tl.maximum(peak, logit)
            finite = tl.where(higher == float("-inf"), 0.0, higher)
            total = total * tl.exp(peak - finite) + tl.exp(logit - finite)
            peak = higher
            is_best = (v >= first_word) & (logit > best)
            place = tl.where(is_best, v, place)
            best = tl.where(is_best, logit, best)
        highest = tl.max(peak, 0)
        log_z = highest + tl.log(tl.sum(total * tl.exp(peak - highest), 0))
        at_end = tl.load(a + end).to(dtype) + tl.load(c + end).to(dtype)
        tl.store(log_end + m, at_end - log_z)
        for rank in range(width):
            value = tl.max(best, 0)
            word = tl.min(tl.where(best == value, place, V), 0)
            tl.store(log_prob + m * width + rank, value - log_z)
            tl.store(token + m * width + rank, tl.minimum(word, V - 1).to(tl.int64))
            v = word % LANES + LANES * tl.arange(0, WORDS_OF_LANE)
            logit = _logits(a, c, v, V, dtype)
            comes_later = (v >= first_word) & ((logit < value) | ((logit == value) & (v > word)))
            logit = tl.where(comes_later, logit, float("-inf"))
            next_value = tl.max(logit, 0)
            next_word = tl.min(tl.where((logit == next_value) & comes_later, v, V), 0)
            best = tl.where(lane == word % LANES, next_value, best)
            place = tl.where(lane == word % LANES, next_word, place)
