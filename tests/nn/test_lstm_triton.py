"""The LSTM kernel gives what its reference gives, in value and gradient."""

import pytest
import torch

from antiphon.nn import lstm_triton
from antiphon.nn.recurrent import LSTM

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize(("B", "T", "H"), [(1, 1, 4), (3, 5, 16), (5, 3, 20), (33, 4, 40), (70, 3, 128)])
def test_the_lstm_kernel_equals_its_reference(B, T, H, device):
    """States, cells, and the gradients of inputs, weights and the state before."""
    torch.manual_seed(1)
    reference = torch.nn.LSTM(6, H, batch_first=True).double()
    leaves = [torch.randn(B, T, 6), torch.randn(B, H), torch.randn(B, H), *reference.parameters()]
    weights = torch.randn(B, T, H), torch.randn(B, H)

    def by_reference(inputs, hidden, cell, *weights):
        named = {name: weight for (name, _), weight in zip(reference.named_parameters(), weights, strict=True)}
        states, (_, last_cell) = torch.func.functional_call(reference, named, (inputs, (hidden[None], cell[None])))
        return states, last_cell[0]

    def by_kernel(inputs, hidden, cell, from_inputs, from_states, *biases):
        gates = torch.nn.functional.linear(inputs, from_inputs, sum(biases))
        states, cells = lstm_triton.lstm_states(gates, from_states, hidden, cell)
        return states, cells[:, -1]

    exact = values_and_all_gradients(by_reference, [leaf.detach().double() for leaf in leaves], weights)
    found = values_and_all_gradients(by_kernel, [leaf.detach().float().to(device) for leaf in leaves], weights)
    assert_as_close_as_products_are(found, exact, device)


def assert_as_close_as_products_are(found, exact, device):
    """Products are in TF32 on a GPU."""
    for ours, wanted in zip(found, exact, strict=True):
        assert (ours - wanted).norm() <= (3e-3 if device == "cuda" else 1e-5) * wanted.norm()


def values_and_all_gradients(function, leaves, weights):
    for leaf in leaves:
        leaf.requires_grad_()
    values = function(*leaves)
    total = sum((value * weight.to(value)).sum() for value, weight in zip(values, weights, strict=True))
    return [tensor.detach().cpu() for tensor in (*values, *torch.autograd.grad(total, leaves))]


@pytest.mark.parametrize("layers", [1, 2])
def test_an_lstm_by_kernels_equals_one_without(layers, device, monkeypatch):
    torch.manual_seed(1)
    reader, lengths = LSTM(6, 20, layers).to(device), torch.tensor([4, 1, 3], device=device)
    inputs, state = torch.randn(3, 4, 6, device=device), torch.randn(2, layers, 3, 20, device=device).unbind()
    ways = []
    for has_kernel in (False, True):
        monkeypatch.setattr(LSTM, "_has_kernel", lambda *_, answer=has_kernel: answer)
        states, after = reader(inputs, state)
        ways.append((states, *after, *reader.last_state(inputs, lengths)))
    assert_as_close_as_products_are(ways[1], ways[0], device)
