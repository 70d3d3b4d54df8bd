import pytest
import torch
from torch import nn

from antiphon.recipe.sections import TrainSection
from antiphon.training.optimisation import Optimisation
from tests.networks import optimisation


@pytest.mark.parametrize("name", ["adam", "adagrad"])
def test_the_l2_penalty_moves_weights_as_its_gradient_does(name):
    """A step on ``loss + l2/2 |w|^2`` equals a step on ``loss`` with the penalty left to the optimiser."""
    torch.manual_seed(0)
    written_out, left = nn.Linear(3, 1), nn.Linear(3, 1)
    left.load_state_dict(written_out.state_dict())
    inputs, l2 = torch.randn(5, 3), 0.3
    penalty = l2 / 2 * sum(parameter.square().sum() for parameter in written_out.parameters())
    steps = (
        optimisation(optimiser=name).new_optimiser(written_out),
        optimisation(optimiser=name, l2=l2).new_optimiser(left),
    )
    (written_out(inputs).square().mean() + penalty).backward()
    left(inputs).square().mean().backward()
    for step in steps:
        step.step()
    torch.testing.assert_close(written_out.weight, left.weight)
    torch.testing.assert_close(written_out.bias, left.bias)


def test_the_optimiser_is_the_one_asked_for():
    assert isinstance(optimisation(optimiser="adagrad").new_optimiser(nn.Linear(1, 1)), torch.optim.Adagrad)
    assert isinstance(optimisation().new_optimiser(nn.Linear(1, 1)), torch.optim.Adam)


def test_an_l2_penalty_of_the_sum_over_all_pairs_is_that_of_the_mean_times_their_number():
    assert Optimisation.of(TrainSection(l2=5.0, l2_of="sum"), pairs=100).l2 == 0.05
    assert Optimisation.of(TrainSection(l2=5.0), pairs=100).l2 == 5.0
