"""The order of batches."""

import numpy as np

from antiphon.training.task import EpochBatches


def test_an_epoch_of_several_passes_sees_every_pair_in_each_by_an_order_of_its_own():
    def plan_pass(order):
        return np.split(order.permutation(12), 3)

    batches = EpochBatches(lambda indices, _: indices, plan_pass, seed=1, passes=3)
    plan = batches.plan(4)
    assert len(plan) == 9
    passes = [np.concatenate(plan[first : first + 3]) for first in (0, 3, 6)]
    assert all(sorted(each) == list(range(12)) for each in passes)
    assert len({tuple(each) for each in passes}) == 3
    assert np.array_equal(plan, batches.plan(4))
    assert not np.array_equal(plan, batches.plan(5))
    one_pass = EpochBatches(lambda indices, _: indices, plan_pass, seed=1)
    assert np.array_equal(one_pass.plan(4), plan[:3])


def test_each_pair_of_each_batch_has_its_own_seed():
    batches = EpochBatches(lambda _, seeds: seeds, lambda _: [], seed=1)
    seeds = [batches.shard(epoch, index, np.arange(4)).batch for epoch in (0, 1) for index in (0, 1)]
    assert len(set(np.concatenate(seeds))) == 16
    assert np.array_equal(batches.shard(1, 0, np.arange(4)).batch, seeds[2])
