"""Probabilities of the next token, summed over the input positions at which it may be written.

    P(n, v) = exp(C[n, v]) sum_i (weight(n, i) / Z(i, n)) exp(A[i, v])        Z = exp(C) exp(A)^T

The same as ``nn/next_tokens.py``, which has the reasons.
"""

from typing import NamedTuple

import numpy as np

from antiphon.lite.log_space import Array, log_of, log_sum


class TokenTable(NamedTuple):
    """The source's part of the token logits of all cells, and its exponentials."""

    logits: Array
    exp: Array
    peak: Array

    @classmethod
    def of(cls, logits: Array) -> "TokenTable":
        """The table of some logits."""
        exp, peak = _exponentials(logits)
        return cls(logits, exp, peak[..., 0])

    def slice_rows(self, rows: slice) -> "TokenTable":
        """Some rows of every sentence."""
        return TokenTable(*(part[:, rows] for part in self))

    def append(self, logits: Array) -> "TokenTable":
        """The same with one more row of every sentence."""
        return TokenTable(*(np.concatenate(pair, 1) for pair in zip(self, TokenTable.of(logits), strict=True)))


def next_tokens(table: TokenTable, logits: Array, sentence: Array, log_weight: Array) -> tuple[Array, Array]:
    """Log probabilities of the next token of every prefix, and the log normaliser of every cell."""
    peak = log_weight.max(1, keepdims=True).clip(np.finfo(np.float64).min)
    weight = np.exp(log_weight - peak).astype(logits.dtype)
    exp_target, target_peak = _exponentials(logits)
    z = multiply_by_sentence(exp_target, table.exp.swapaxes(1, 2), sentence)
    lost = _underflows(z, logits.shape[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        log_z = np.log(z) + table.peak[sentence] + target_peak
        per_z = np.where(lost, 0, weight / z)
    probs = multiply_by_sentence(per_z, table.exp, sentence) * exp_target
    for n, i in np.argwhere(lost):
        cell = table.logits[sentence[n], i] + logits[n]
        log_z[n, i] = log_sum(cell, 0)
        probs[n] += weight[n, i] * np.exp(cell - log_z[n, i])
    return log_of(probs) + peak.astype(logits.dtype), log_z


def log_normalisers(table: TokenTable, logits: Array, sentence: Array) -> Array:
    """``log Z(i, n)`` of every row ``i`` of the sentence of each prefix ``n``."""
    exp_target, peak = _exponentials(logits)
    z = multiply_by_sentence(exp_target, table.exp.swapaxes(1, 2), sentence)
    log_z = log_of(z) + table.peak[sentence] + peak
    for n, i in np.argwhere(_underflows(z, logits.shape[1])):
        log_z[n, i] = log_sum(table.logits[sentence[n], i] + logits[n], 0)
    return np.asarray(log_z)


def multiply_by_sentence(left: Array, right: Array, sentence: Array) -> Array:
    """``left[n] @ right[sentence[n]]`` for every ``n``; ``sentence`` is sorted."""
    counts = np.bincount(sentence, minlength=len(right))
    if (counts == counts[0]).all():
        return np.asarray((left.reshape(len(right), -1, left.shape[1]) @ right).reshape(len(left), -1))
    ends = counts.cumsum()
    parts = [
        left[end - count : end] @ right[b] for b, (end, count) in enumerate(zip(ends, counts, strict=True)) if count
    ]
    return np.concatenate(parts)


def _exponentials(logits: Array) -> tuple[Array, Array]:
    """``exp(logits - peak)`` of every row, and the peaks."""
    peak = logits.max(-1, keepdims=True)
    return np.exp(logits - peak), peak


def _underflows(z: Array, V: int) -> Array:
    """True where up to V terms lost to underflow may matter."""
    kind = np.finfo(z.dtype)
    return np.asarray(z < V * kind.tiny / kind.eps)
