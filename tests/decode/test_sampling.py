from collections import Counter

import pytest
import torch
from scipy.stats import chisquare

from antiphon.decode.sampling import sample_outputs
from tests.decode.small_models import batch_of, every_output, pair, small_model, sources
from tests.networks import beam_settings

SHORT = beam_settings(max_length_ratio=0.0, max_length_extra=4)


@pytest.mark.parametrize("name", ["transducer", "geometric", "attention", "copying", "transformer"])
def test_samples_follow_the_exact_distribution_of_outputs(name):
    model = small_model(name, 0, scale=2.0)
    (source,) = sources(3)
    (drawn,) = sample_outputs(model, batch_of([source]), SHORT, count=2000, seed=7)
    counts = Counter(hypothesis.tokens for hypothesis in drawn)
    listed = every_output(model, source, longest=4)
    probabilities = torch.tensor([log_prob for _, log_prob, _ in listed], dtype=torch.float64).exp()
    expected = probabilities / probabilities.sum() * len(drawn)
    observed = torch.tensor([float(counts[tokens]) for *_, tokens in listed], dtype=torch.float64)
    often = expected >= 5
    pooled = [torch.cat([each[often], each[~often].sum()[None]]) for each in (observed, expected)]
    assert len(drawn) > 1500
    assert observed.sum() == len(drawn)
    pooled = [each[pooled[1] > 0] for each in pooled]
    assert chisquare(*(each.numpy() for each in pooled)).pvalue > 0.01


def test_the_probability_of_a_sample_is_that_of_a_forward_pass():
    model = small_model(seed=2, target_size=12, scale=2.0)
    inputs = sources(4, 2)
    drawn = sample_outputs(model, batch_of(inputs), beam_settings(), count=5, seed=1)
    for source, hypotheses in zip(inputs, drawn, strict=True):
        assert hypotheses
        for hypothesis in hypotheses:
            with torch.no_grad():
                assert hypothesis.log_prob == pytest.approx(model.log_prob(pair(source, hypothesis.tokens[:-1])).item())


def test_the_seed_and_the_input_alone_decide_what_is_drawn():
    model, inputs = small_model(seed=1, target_size=12), sources(4, 2, 7)
    together = sample_outputs(model, batch_of(inputs), beam_settings(), count=3, seed=1)
    alone = [sample_outputs(model, batch_of([source]), beam_settings(), count=3, seed=1)[0] for source in inputs]
    other = sample_outputs(model, batch_of(inputs), beam_settings(), count=3, seed=2)
    assert [[h.tokens for h in each] for each in together] == [[h.tokens for h in each] for each in alone]
    assert [[h.tokens for h in each] for each in together] != [[h.tokens for h in each] for each in other]
