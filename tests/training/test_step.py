"""One step of training, in the ways it can be taken: whole, padded with weights, and with an EMA."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn

from antiphon.data.batch import Batch
from antiphon.models.recurrent import Attention, EncoderDecoder, LanguageModel
from antiphon.models.transducer import Transducer
from antiphon.models.transformer import Transformer
from antiphon.training.optimisation import EMA, Schedule, restore_optimiser
from antiphon.training.step import Step, negative_log_likelihood, smoothed_loss
from tests.networks import build_network


def draw_batch():
    draw = np.random.default_rng(1)
    return Batch.of(
        [draw.integers(4, 9, n) for n in (3, 5, 1)],
        [draw.integers(4, 8, n) for n in (4, 2, 6)],
    )


def new_model(kind):
    torch.manual_seed(1)
    return build_network(kind, 9, 8).double()


def step_of(model):
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    return Step(model, negative_log_likelihood, optimiser, clip=1.0)


def assert_same_weights(one, other):
    for name, weight in one.state_dict().items():
        torch.testing.assert_close(weight, other.state_dict()[name], msg=name)


@pytest.mark.parametrize("kind", [Transducer, Attention])
def test_padding_that_counts_nothing_changes_no_step(kind):
    """This allows steps to be captured for few shapes."""
    plain, padded = new_model(kind), new_model(kind)
    batch = draw_batch()
    result = step_of(plain)(batch)
    weights = torch.tensor([1 / 3] * 3 + [0.0] * 2, dtype=torch.float64)
    loss = step_of(padded).prepare([batch.padded(5, 8, 12)], weights)()
    torch.testing.assert_close(loss, result.loss)
    assert result.pairs == 3
    assert_same_weights(plain, padded)


@pytest.mark.parametrize("weight", [0.0, torch.tensor([0.5, 0.0])])
def test_an_infinite_loss_that_weighs_nothing_counts_nothing(weight):
    model = nn.Linear(1, 1, bias=False)

    def one_is_infinite(model, batch):
        return torch.cat([model.weight[0], model.weight[0].masked_fill(torch.tensor(True), float("inf"))])

    step = Step(model, one_is_infinite, torch.optim.SGD(model.parameters(), 0.1), clip=1.0)
    assert step.gradients([torch.zeros(1, 1)], weight).isfinite()
    assert model.weight.grad.isfinite().all()


def test_a_padded_batch_holds_the_same_pairs_and_then_some_of_nothing():
    batch = draw_batch()
    padded = batch.padded(4, 7, 9)
    assert padded.sizes == (4, 7, 9)
    assert torch.equal(padded.source[:3, :6], batch.source)
    assert padded.source_lengths.tolist() == [4, 6, 2, 1]
    assert padded.target_lengths.tolist() == [5, 3, 7, 1]


def test_the_ema_starts_with_the_weights_and_then_follows_them():
    """After the first update, number t has decay min(decay, (1 + t) / (10 + t))."""
    model, expected = nn.Linear(1, 1), 0.0
    average = EMA(model, 0.25)
    for decay, weight in zip((0, 1 / 10, 2 / 11, 3 / 12, 0.25, 0.25), (3.0, 8.0, -1.0, 5.0, 2.0, 7.0), strict=True):
        torch.nn.init.constant_(model.weight, weight)
        average.update_parameters(model)
        expected = decay * expected + (1 - decay) * weight
        assert average.module.weight.item() == pytest.approx(expected, rel=1e-6)
    assert not average.module.weight.requires_grad


def test_the_ema_of_a_short_run_is_not_that_of_its_start():
    """After 100 updates a decay of 0.998 alone would leave four fifths of the weights of the first."""
    model = nn.Linear(1, 1)
    average = EMA(model, 0.998)
    for update in range(100):
        torch.nn.init.constant_(model.weight, 1.0 if update < 50 else 0.0)
        average.update_parameters(model)
    assert average.module.weight.item() < 0.01


def test_an_ema_continues_from_a_checkpoint():
    model = nn.Linear(2, 1)
    average, resumed = EMA(model, 0.5), EMA(model, 0.5)
    average.update_parameters(model)
    resumed.load_state_dict(deepcopy(average.state_dict()))
    for _ in range(2):
        with torch.no_grad():
            model.weight.add_(1.0)
        for one in (average, resumed):
            one.update_parameters(model)
    assert torch.equal(average.module.weight, resumed.module.weight)


def test_a_learning_rate_that_is_a_tensor_changes_in_its_place():
    rate = torch.tensor(0.1)
    optimiser = torch.optim.Adam([nn.Parameter(torch.ones(1))], lr=rate, fused=True)
    Schedule(0.02, 1.0, 0, max_epochs=1).scheduler(optimiser, epoch=0, updates=5)
    assert optimiser.param_groups[0]["lr"] is rate
    assert rate.item() == pytest.approx(0.02)


def test_a_restored_optimiser_keeps_the_learning_rate_of_its_own_device():
    """A captured step reads the tensor it was captured with; a checkpoint may hold a number, or another tensor."""
    weight = nn.Parameter(torch.ones(1))
    before = torch.optim.Adam([weight], lr=0.5, fused=True)
    weight.sum().backward()
    before.step()
    rate = torch.tensor(0.1)
    after = torch.optim.Adam([weight], lr=rate, fused=True)
    restore_optimiser(after, before.state_dict())
    assert after.param_groups[0]["lr"] is rate
    assert after.state[weight]["exp_avg"].item() == before.state[weight]["exp_avg"].item() != 0


@pytest.mark.parametrize("kind", [Attention, EncoderDecoder, LanguageModel, Transformer])
def test_label_smoothing_mixes_each_token_with_the_mean_of_all_and_ignores_padding(kind):
    model, batch, share = new_model(kind), draw_batch(), 0.3
    log_probs = model.logits(batch).log_softmax(2)
    of_tokens = log_probs.gather(2, batch.target[:, :, None])[:, :, 0]
    valid = torch.arange(batch.target.shape[1]) < batch.target_lengths[:, None]
    expected = -(((1 - share) * of_tokens + share * log_probs.mean(2)) * valid).sum(1)
    torch.testing.assert_close(smoothed_loss(share)(model, batch), expected)
    torch.testing.assert_close(smoothed_loss(share)(model, batch.padded(4, 9, 11))[:3], expected)
    torch.testing.assert_close(smoothed_loss(0.0)(model, batch), negative_log_likelihood(model, batch))
