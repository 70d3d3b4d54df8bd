"""Functions of log probabilities in numpy, and the choice of the best."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
IMPOSSIBLE = -np.inf
_BLOCK = 64
"""Tokens per block: a block is searched only if its maximum is among the best."""


def log_softmax(logits: Array) -> Array:
    """Log probabilities along the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


def log_sum(values: Array, axis: int) -> Array:
    """The log of the sum of exponentials along an axis; impossible if all values are."""
    return np.asarray(np.logaddexp.reduce(values, axis))


def log_sigmoid(values: Array) -> Array:
    """The log of the sigmoid of each value."""
    return np.asarray(-np.logaddexp(0, -values))


def log_of(values: Array) -> Array:
    """Logs, impossible at 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values))


def forward_along(log_arrive: Array, log_move: Array) -> Array:
    """``forward(i) = logaddexp(log_arrive(i), forward(i-1) + log_move(i-1))`` along the last axis, as doubles.

    The same as ``lattice/marginal.py``.
    """
    moves = log_move.astype(np.float64)
    before = moves.cumsum(-1) - moves
    return np.asarray(before + np.logaddexp.accumulate(log_arrive - before, -1))


def top_k(values: Array, k: int) -> tuple[Array, Array]:
    """The ``k`` highest values of every row, best first, and their indices."""
    size = values.shape[1]
    if k == 1:
        index = values.argmax(1)[:, None]
        return np.take_along_axis(values, index, 1), index
    some = (
        np.argpartition(values, size - k, 1)[:, size - k :]
        if k < size
        else np.arange(size)[None].repeat(len(values), 0)
    )
    found = np.take_along_axis(values, some, 1)
    order = np.argsort(-found, 1, kind="stable")
    return np.take_along_axis(found, order, 1), np.take_along_axis(some, order, 1)


def kth_best(values: Array, k: int) -> Array:
    """The ``k``-th highest value of every row."""
    size = values.shape[1]
    return values.max(1) if k == 1 else np.partition(values, size - k, 1)[:, size - k]


def top_tokens(scores: Array, width: int) -> tuple[Array, Array]:
    """The same as ``top_k``, found in the ``width`` blocks with the highest maxima if there are many tokens."""
    N, V = scores.shape
    count, rest = divmod(V, _BLOCK)
    if count < 2 * width:
        return top_k(scores, width)
    blocks = scores[:, : V - rest].reshape(N, count, _BLOCK)
    chosen = top_k(blocks.max(2), width)[1]
    index = (chosen[:, :, None] * _BLOCK + np.arange(_BLOCK)).reshape(N, -1)
    index = np.concatenate([index, np.arange(V - rest, V)[None].repeat(N, 0)], 1)
    best, which = top_k(np.take_along_axis(scores, index, 1), width)
    return best, np.take_along_axis(index, which, 1)
