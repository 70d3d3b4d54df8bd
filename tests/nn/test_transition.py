import pytest
import torch

from antiphon.nn.transition import GeometricTransition, NeuralTransition


def draw_units(scale, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(2, length, 6, generator=generator, dtype=dtype) * scale).requires_grad_() for length in (4, 3)]


def neural(dtype=torch.float64):
    torch.manual_seed(2)
    return NeuralTransition(5, 5, units=6).to(dtype)


@pytest.mark.parametrize("scale", [1.0, 8.0, 200.0])
def test_all_cells_at_once_equal_one_tanh_for_each(scale):
    """With units of 200 the factors would overflow, so the ordinary way is gone."""
    transition, units = neural(), draw_units(scale)
    found = transition.all_log_odds(*units)
    wanted = transition.log_odds(units[0][:, :, None], units[1][:, None])
    torch.testing.assert_close(found, wanted)
    weight = torch.linspace(-1, 1, found.numel(), dtype=found.dtype).view_as(found)
    leaves = [*units, *transition.output.parameters()]
    for ours, theirs in zip(
        torch.autograd.grad((found * weight).sum(), leaves),
        torch.autograd.grad((wanted * weight).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


def test_single_precision_is_kept_up_to_the_largest_units():
    units = [torch.tensor([[[39.0, -39.0, 38.0, 0.5]]]), torch.tensor([[[-38.5, 39.0, -39.5, 0.25]]])]
    transition = NeuralTransition(5, 5, units=4)
    exact = transition.double().log_odds(units[0].double(), units[1].double())[0]
    found = transition.float().all_log_odds(*units)[0, 0]
    torch.testing.assert_close(found, exact.float(), atol=1e-4, rtol=1e-4)


def test_the_geometric_chance_is_the_same_in_all_cells():
    nothing = torch.zeros(2, 4, 0), torch.zeros(2, 3, 0)
    assert torch.equal(GeometricTransition(0.5).all_log_odds(*nothing), torch.zeros(2, 4, 3))
