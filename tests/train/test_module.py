import numpy as np
import pytest
import torch
from torch import nn

from antiphon.train.module import EpochBatches, Optimisation


def optimisation(**settings):
    return Optimisation(learning_rate=0.1, average=0.0, seed=1, **settings)


@pytest.mark.parametrize("name", ["adam", "adagrad"])
def test_the_l2_penalty_moves_weights_as_its_gradient_does(name):
    """A step on ``loss + l2/2 |w|^2`` equals a step on ``loss`` with the penalty left to the optimiser."""
    torch.manual_seed(0)
    written_out, left = nn.Linear(3, 1), nn.Linear(3, 1)
    left.load_state_dict(written_out.state_dict())
    inputs, l2 = torch.randn(5, 3), 0.3
    penalty = l2 / 2 * sum(parameter.square().sum() for parameter in written_out.parameters())
    steps = (
        optimisation(optimiser=name).optimiser_of(written_out),
        optimisation(optimiser=name, l2=l2).optimiser_of(left),
    )
    (written_out(inputs).square().mean() + penalty).backward()
    left(inputs).square().mean().backward()
    for step in steps:
        step.step()
    torch.testing.assert_close(written_out.weight, left.weight)
    torch.testing.assert_close(written_out.bias, left.bias)


def test_the_optimiser_is_the_one_asked_for():
    assert isinstance(optimisation(optimiser="adagrad").optimiser_of(nn.Linear(1, 1)), torch.optim.Adagrad)
    assert isinstance(optimisation().optimiser_of(nn.Linear(1, 1)), torch.optim.Adam)


def test_an_epoch_of_several_passes_sees_every_pair_in_each_by_an_order_of_its_own():
    def plan(order):
        return np.split(order.permutation(12), 3)

    batches = EpochBatches(lambda numbers, _: numbers, plan, seed=1, epoch=lambda: 4, passes=3)
    found = list(batches)
    assert batches.planned == len(found) == 9
    passes = [np.concatenate(found[first : first + 3]) for first in (0, 3, 6)]
    assert all(sorted(each) == list(range(12)) for each in passes)
    assert len({tuple(each) for each in passes}) == 3
    assert np.array_equal(found, batches.plan_epoch(4))
    assert not np.array_equal(found, batches.plan_epoch(5))
    one_pass = EpochBatches(lambda numbers, _: numbers, plan, seed=1, epoch=lambda: 4)
    assert np.array_equal(list(one_pass), found[:3])
