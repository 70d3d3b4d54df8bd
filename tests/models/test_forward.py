"""Every network can be called: ``module(batch)`` is the log probability of each pair."""

import numpy as np
import pytest
import torch

from antiphon.data.batch import Batch
from antiphon.models.ensemble_model import Ensemble, MemberIds
from antiphon.models.recurrent import LanguageModel
from tests.decode.small_models import MODELS, features_of, small_model, sources
from tests.decode.test_rescoring import combine, components, every_output
from tests.networks import build_network

TARGETS = [np.array(target, np.int32) for target in ([4, 5], [5])]


def small_batch():
    inputs = sources(3, 2)
    return Batch.of(inputs, TARGETS, [features_of(source) for source in inputs])


def small_ensemble():
    same = MemberIds(torch.arange(9), torch.arange(6), torch.arange(8))
    return Ensemble([small_model("transducer"), small_model("attention", seed=1)], [same, same]).eval()


def network(name):
    if name == "ensemble":
        return small_ensemble()
    if name == "language_model":
        return build_network(LanguageModel, 9, 6, layers=2).double().eval()
    return small_model(name)


@pytest.mark.parametrize("name", [*MODELS, "ensemble", "language_model"])
def test_calling_a_network_gives_log_probabilities_with_gradients_and_runs_hooks(name):
    model, batch, heard = network(name), small_batch(), []
    model.register_forward_hook(lambda module, inputs, output: heard.append(output))
    log_probs = model(batch)
    torch.testing.assert_close(log_probs, model.log_prob(batch))
    assert log_probs.shape == (2,)
    assert (log_probs < 0).all()
    log_probs.sum().backward()
    assert any(parameter.grad is not None for parameter in model.parameters())
    assert heard[0] is log_probs


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0, 0.5), (0.5, 0.0, 2.0, -1.0)])
def test_calling_a_noisy_channel_gives_its_objective(weights):
    parts, (source,) = components(), sources(3)
    model = combine(parts, weights)
    for objective, tokens, _ in every_output(parts, weights, source, longest=3):
        pair = Batch.of([source], [np.array(tokens[:-1], np.int32)], [features_of(source)])
        assert model(pair).item() == pytest.approx(objective)


def test_a_noisy_channel_may_lack_its_channel_and_language_model():
    direct, _, _ = components()
    model, batch = combine((direct, None, None), (2.0, 1.0, 1.0, 0.0)), small_batch()
    torch.testing.assert_close(model(batch), 2.0 * direct(batch))
