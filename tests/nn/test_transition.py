import pytest
import torch

from antiphon.nn.transducer_layers import GeometricTransition, NeuralTransition


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


@pytest.mark.parametrize("size", [1.0, 100.0])
@torch.no_grad()
def test_rows_of_a_table_have_the_log_odds_of_their_cells(size):
    torch.manual_seed(1)
    transition = NeuralTransition(5, 4, units=6).double()
    source, target = size * torch.randn(2, 7, 6).double(), torch.randn(3, 6).double()
    sentence, rows = torch.tensor([0, 1, 1]), slice(2, 5)
    table = transition.table(source)
    assert table.is_exponential == (size == 1.0)
    wanted = transition.log_odds(source[sentence, rows], target[:, None])
    torch.testing.assert_close(transition.log_odds_by_sentence(table.slice_rows(rows), target, sentence), wanted)


@torch.no_grad()
def test_odds_are_alike_by_cell_by_row_and_with_sides_exchanged():
    torch.manual_seed(1)
    transition = NeuralTransition(5, 4, units=6).double()
    source = transition.source_part(torch.randn(2, 7, 5).double())
    target = transition.target_part(torch.randn(2, 3, 4).double())
    cells = transition.all_log_odds(source, target)
    torch.testing.assert_close(cells, transition.log_odds(source[:, :, None], target[:, None]))
    sentence = torch.tensor([0, 0, 0, 1, 1, 1])
    by_row = transition.log_odds_by_sentence(transition.table(source), target.flatten(0, 1), sentence)
    torch.testing.assert_close(by_row, cells.mT.flatten(0, 1))
    rows = torch.arange(2).repeat_interleave(7)
    by_column = transition.log_odds_by_sentence(transition.table(target), source.flatten(0, 1), rows)
    torch.testing.assert_close(by_column, cells.flatten(0, 1))


@torch.no_grad()
def test_a_table_takes_rows_that_cannot_be_exponentials():
    torch.manual_seed(1)
    transition = NeuralTransition(5, 4, units=6).double()
    source, target = torch.randn(1, 3, 6).double(), torch.randn(2, 6).double()
    source[:, 2] *= 100
    table = (
        transition.table(source[:, :1]).append(transition.table(source[:, 1:2])).append(transition.table(source[:, 2:]))
    )
    sentence = torch.zeros(2, dtype=torch.long)
    wanted = transition.log_odds(source[sentence], target[:, None])
    torch.testing.assert_close(transition.log_odds_by_sentence(table, target, sentence), wanted)
