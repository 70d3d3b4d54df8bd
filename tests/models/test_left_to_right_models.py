"""Every kind that predicts token by token: step by step equals at once, and padding changes nothing."""

import pytest
import torch

from antiphon.data.batch import Batch
from antiphon.models.recurrent import Attention, EncoderDecoder, LanguageModel
from antiphon.models.transformer import Transformer
from antiphon.torch_free.vocab import START, UNKNOWN
from tests.networks import build_network


def ids(*numbers):
    return torch.tensor(numbers, dtype=torch.int32).numpy()


KINDS = [EncoderDecoder, Attention, LanguageModel, Transformer]
PAIRS = [(ids(4, 5, 6), ids(4, 5)), (ids(7), ids(6, 6, 5, 4)), (ids(), ids())]
FEATURES = [ids(4, 5), ids(), ids(5)]


def model_of(kind, **settings):
    torch.manual_seed(1)
    return build_network(kind, 8, 7, **settings).double().eval()


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_padding_changes_no_log_probability(kind, layers):
    model = model_of(kind, layers=layers)
    together = model.log_prob(Batch.of(*zip(*PAIRS, strict=True)))
    alone = torch.cat([model.log_prob(Batch.of([source], [target])) for source, target in PAIRS])
    torch.testing.assert_close(together, alone)
    assert (together < 0).all()


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_scores_step_by_step_add_up_to_the_score_at_once(kind, layers):
    model = model_of(kind, layers=layers, feature_size=6)
    batch = Batch.of(*zip(*PAIRS, strict=True), FEATURES)
    memory, state = model.start(batch)
    token = torch.full((3,), START)
    total = torch.zeros(3, dtype=torch.float64)
    for j in range(batch.target.shape[1]):
        log_probs, state = model.step(memory, state, token, torch.arange(3))
        torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(3, dtype=torch.float64))
        token = batch.target[:, j]
        total += log_probs[torch.arange(3), token] * (j < batch.target_lengths)
    torch.testing.assert_close(total, model.log_prob(batch))


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_features_are_a_set_to_which_unseen_ones_and_padding_add_nothing(kind):
    model = model_of(kind, feature_size=7)
    features = [ids(), ids(UNKNOWN), ids(4), ids(4, UNKNOWN), ids(4, 6), ids(6, 4), ids(6)]
    batch = Batch.of([ids(4, 5)] * 7, [ids(4, 5)] * 7, features, max_features=4)
    none, unseen, one, one_more, two, reverse, other = model.log_prob(batch).tolist()
    assert unseen == pytest.approx(none)
    assert one_more == pytest.approx(one)
    assert reverse == pytest.approx(two)
    assert len({round(value, 6) for value in (none, one, two, other)}) == 4
    alone = model.log_prob(Batch.of([ids(4, 5)], [ids(4, 5)], [ids(4, 6)]))
    assert alone.item() == pytest.approx(two)


@pytest.mark.parametrize(("kind", "layers"), [(Attention, 1), (Transformer, 1), (Transformer, 2)])
@torch.no_grad()
def test_attention_weights_are_distributions_over_real_positions(kind, layers):
    batch = Batch.of(*zip(*PAIRS, strict=True))
    weights = model_of(kind, layers=layers).attention(batch)
    torch.testing.assert_close(weights.sum(1), torch.ones(3, 5, dtype=torch.float64))
    assert (weights[1, 2:] == 0).all()


def test_the_encoder_decoder_starts_from_the_last_state_of_the_source():
    model = model_of(EncoderDecoder)
    batch = Batch.of([ids(4, 5, 6)], [ids(4)])
    _, (hidden, cell) = model.encoder(model.source_embedding(batch.source))
    torch.testing.assert_close(model.start(batch)[1][0], hidden)
    torch.testing.assert_close(model.start(batch)[1][1], cell)


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_gets_a_gradient(kind):
    model = model_of(kind, layers=2, feature_size=6)
    model.log_prob(Batch.of(*zip(*PAIRS, strict=True), FEATURES)).sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in model.parameters())
