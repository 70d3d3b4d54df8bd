import pytest
import torch

from antiphon.data.batch import Batch
from antiphon.models.transducer import Transducer
from antiphon.nn import transducer_layers
from tests.networks import build_network


@pytest.mark.parametrize("words", [9, 15, 16])
def test_words_that_cannot_be_change_neither_loss_nor_gradient(words, monkeypatch):
    torch.manual_seed(1)
    model = build_network(Transducer, 10, words, embedding_size=6)
    batch = Batch.of([[4, 5, 6], [7]], [[4, 5], [8, 6, 7]])
    ways = []
    for has_kernel in (False, True):
        monkeypatch.setattr(transducer_layers, "kernels_can_run", lambda _, answer=has_kernel: answer)
        losses = model.log_prob(batch)
        ways.append((losses, *torch.autograd.grad(losses.sum(), model.parameters())))
    for ours, wanted in zip(*ways, strict=True):
        torch.testing.assert_close(ours, wanted)


def test_rows_are_padded_to_a_multiple_of_eight_only_in_training(monkeypatch):
    monkeypatch.setattr(transducer_layers, "kernels_can_run", lambda _: True)
    layer = transducer_layers.TokenLogits(3, 5)
    assert layer(torch.ones(2, 3)).shape == (2, 8)
    assert layer.eval()(torch.ones(2, 3)).shape == (2, 5)


def test_computing_logits_changes_no_precision_of_other_threads(monkeypatch):
    def refuse(_):
        raise AssertionError("the precision of products belongs to the process")

    monkeypatch.setattr(transducer_layers, "kernels_can_run", lambda _: True)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", refuse)
    layer = transducer_layers.TokenLogits(3, 5)
    layer(torch.ones(2, 3))[:, :5].sum().backward()
