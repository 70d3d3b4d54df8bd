"""Slow, obvious twins of the lattice functions, for one pair without padding."""

from collections.abc import Iterator
from itertools import combinations_with_replacement

import torch
from torch import Tensor


def every_path(I: int, J: int) -> Iterator[tuple[int, ...]]:
    """Every monotone assignment of rows to tokens whose last token stands in the last row."""
    for rows in combinations_with_replacement(range(I), J - 1):
        yield (*rows, I - 1)


def path_score(rows: tuple[int, ...], log_write: Tensor, log_read: Tensor) -> Tensor:
    total = log_write.new_zeros(())
    at = 0
    for j, row in enumerate(rows):
        total = total + log_read[at:row, j].sum() + log_write[row, j]
        at = row
    return total


def listed_log_marginal(log_write: Tensor, log_read: Tensor) -> Tensor:
    I, J = log_write.shape
    return torch.logsumexp(torch.stack([path_score(rows, log_write, log_read) for rows in every_path(I, J)]), 0)


def listed_best(log_write: Tensor, log_read: Tensor) -> float:
    I, J = log_write.shape
    return max(float(path_score(rows, log_write, log_read)) for rows in every_path(I, J))


def thesis_log_marginal(log_write: Tensor, log_read: Tensor) -> Tensor:
    """The thesis's own recursion, O(I^2 J): alpha(i, j) sums over every row k of the token before."""
    I, J = log_write.shape
    write, read = log_write.exp(), log_read.exp()

    def jump(k: int, i: int, j: int) -> Tensor:
        return read[k:i, j].prod() * write[i, j]

    alpha = torch.stack([jump(0, i, 0) for i in range(I)])
    for j in range(1, J):
        alpha = torch.stack([sum(alpha[k] * jump(k, i, j) for k in range(i + 1)) for i in range(I)])
    return alpha[I - 1].log()
