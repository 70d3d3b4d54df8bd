"""Which pairs form a batch: those of similar length."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

_BATCHES_PER_POOL = 50


def plan_batches(
    source_lengths: NDArray[np.int64],
    target_lengths: NDArray[np.int64],
    *,
    batch_size: int,
    max_cells: int,
    order: np.random.Generator | None = None,
) -> list[NDArray[np.int64]]:
    """Indices of the pairs of each batch: at most ``batch_size`` pairs and ``max_cells`` padded lattice cells.

    Pairs are shuffled, sorted by length inside pools of some fifty batches, cut into batches, and the batches
    shuffled again, all by ``order``. Without it, pairs are sorted by length as a whole.
    """
    indices = np.arange(len(source_lengths)) if order is None else order.permutation(len(source_lengths))
    pool = len(indices) if order is None else batch_size * _BATCHES_PER_POOL
    batches: list[NDArray[np.int64]] = []
    for first in range(0, len(indices), max(1, pool)):
        members = indices[first : first + pool]
        by_length = members[np.lexsort((target_lengths[members], source_lengths[members]))]
        batches.extend(_split_batches(by_length, source_lengths, target_lengths, batch_size, max_cells))
    return batches if order is None else [batches[index] for index in order.permutation(len(batches))]


def _split_batches(
    indices: NDArray[np.int64],
    source_lengths: NDArray[np.int64],
    target_lengths: NDArray[np.int64],
    batch_size: int,
    max_cells: int,
) -> Iterator[NDArray[np.int64]]:
    """Pairs sorted by length, split into the largest batches that both bounds allow."""
    sources, targets = source_lengths[indices], target_lengths[indices]
    first = 0
    while first < len(indices):
        # No batch can be longer than one of pairs as short as its first.
        reach = min(batch_size, max(1, max_cells // max(1, int(sources[first] * targets[first]))))
        columns = np.maximum.accumulate(targets[first : first + reach])
        cells = np.arange(1, len(columns) + 1) * sources[first : first + reach] * columns
        last = first + max(1, int(np.searchsorted(cells, max_cells, side="right")))
        yield indices[first:last]
        first = last
