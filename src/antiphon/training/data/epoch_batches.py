"""The batches of every epoch, in an order that follows from the seed and the epoch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.training.distributed import BatchShard, shard_indices

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class EpochBatches:
    """The training batches; an epoch is ``passes`` passes over the pairs, each in its own order.

    ``load`` makes a batch of the pairs with these indices, given a random seed for each of them. ``plan_pass`` gives
    the indices of the pairs of every batch of a pass. ``groups`` has the group of every pair, where pairs of a batch
    that are in one group have to be computed by one process.
    """

    load: Callable[[Indices, Indices], Any]
    plan_pass: Callable[[np.random.Generator], list[Indices]]
    seed: int
    passes: int = 1
    groups: Indices | None = None

    def plan(self, epoch: int) -> list[Indices]:
        """The indices of the pairs of every batch of an epoch."""
        order = np.random.default_rng([self.seed, epoch])
        return [indices for _ in range(self.passes) for indices in self.plan_pass(order)]

    def shard(self, epoch: int, index: int, indices: Indices) -> BatchShard:
        """Batch number ``index`` of an epoch, or this process's shard of it; ``indices`` are as in the plan."""
        random = np.random.default_rng([self.seed, epoch, index])
        seeds = random.integers(2**63, size=len(indices))
        own, pairs = shard_indices(indices, self.groups)
        return BatchShard(self.load(indices[own], seeds[own]), pairs, len(indices))
