"""The marginal kernel gives what its reference gives, in value and gradient."""

import pytest
import torch

from antiphon.lattice import log_marginal, marginal_triton
from tests.gradients import value_and_gradients
from tests.lattice.test_lattice import draw_lengths, draw_moves

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.filterwarnings("ignore:divide by zero encountered in log"),  # of the interpreter
]
IMPOSSIBLE = float("-inf")


def assert_same_marginal(write, read, lengths, device):
    weight = torch.linspace(0.5, 2, len(write), dtype=write.dtype)
    wanted = value_and_gradients(log_marginal, (write, read), *lengths, weight=weight)
    moved = [tensor.to(device) for tensor in (write, read)]
    found = value_and_gradients(
        marginal_triton.log_marginal, moved, *(length.to(device) for length in lengths), weight=weight.to(device)
    )
    for ours, reference in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, reference)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("B", "I", "J"), [(1, 1, 1), (2, 1, 5), (3, 6, 1), (4, 7, 5), (2, 70, 9)])
def test_the_marginal_kernel_equals_its_reference(B, I, J, dtype, device):
    write, read = draw_moves(1, B, I, J, dtype=dtype)
    assert_same_marginal(write, read, (draw_lengths(2, B, I), draw_lengths(3, B, J)), device)


def test_the_marginal_kernel_is_exact_for_extreme_scores(device):
    write, read = draw_moves(1, 3, 6, 5, scale=300.0)
    assert_same_marginal(write, read, (torch.tensor([6, 3, 6]), torch.tensor([5, 5, 2])), device)


def test_impossible_moves_never_become_nan_in_the_marginal_kernel(device):
    write, read = draw_moves(1, 3, 4, 4)
    write[0, 1, 2] = read[0, 2, 0] = IMPOSSIBLE
    write[1] = IMPOSSIBLE
    read[2] = IMPOSSIBLE
    lengths = torch.tensor([4, 4, 4]), torch.tensor([4, 4, 4])
    assert_same_marginal(write, read, lengths, device)
    assert (
        marginal_triton.log_marginal(write.to(device), read.to(device), *(n.to(device) for n in lengths))[1]
        == IMPOSSIBLE
    )


def test_the_marginal_kernel_does_not_look_at_padding(device):
    write, read = draw_moves(1, 2, 5, 5)
    padded = [scores.clone() for scores in (write, read)]
    for scores in padded:
        scores[1, 3:] = scores[1, :, 2:] = float("nan")
    lengths = torch.tensor([5, 3]).to(device), torch.tensor([5, 2]).to(device)
    with_padding = marginal_triton.log_marginal(*(scores.to(device) for scores in padded), *lengths)
    assert torch.equal(with_padding, marginal_triton.log_marginal(write.to(device), read.to(device), *lengths))


def test_the_marginal_kernel_gives_a_side_without_tokens_no_path(device):
    write, read = draw_moves(1, 4, 3, 4)
    assert_same_marginal(write, read, (torch.tensor([0, 1, 3, 0]), torch.tensor([4, 0, 4, 0])), device)
