"""Search for outputs that begin with given tokens, and what a beam gives up."""

import pytest
import torch

from antiphon.data.batch import Batch
from antiphon.decode.beam_search import BeamSearch, search_outputs
from antiphon.decode.noisy_channel import search_with_pruned
from antiphon.models.recurrent import Attention
from antiphon.models.transducer import Transducer
from antiphon.torch_free.vocab import END, SPECIALS
from tests.networks import beam_settings, build_network

SIZE = len(SPECIALS) + 4


@pytest.fixture(params=[Transducer, Attention])
def model(request):
    torch.manual_seed(1)
    return build_network(request.param, SIZE, SIZE).eval()


def batch(*sources):
    return Batch.of([torch.tensor(source).int().numpy() for source in sources])


def test_outputs_begin_with_the_prefix_and_have_their_own_probability(model):
    sources = batch([4, 5, 6], [7, 4])
    settings = beam_settings(beam=3, nbest=2)
    for hypotheses in search_outputs(model, sources, settings, [6, 5]):
        assert hypotheses
        for hypothesis in hypotheses:
            assert hypothesis.tokens[:2] == (6, 5)
            assert hypothesis.log_prob == pytest.approx(sum(hypothesis.token_log_probs), abs=1e-5)
    best = search_outputs(model, sources, settings)
    forced = [search_outputs(model, sources, settings, each[0].tokens[:-1])[n] for n, each in enumerate(best)]
    for found, wanted in zip(forced, best, strict=True):
        assert found[0].log_prob == pytest.approx(wanted[0].log_prob, abs=1e-5) or found[0].tokens != wanted[0].tokens


def test_a_second_search_keeps_to_the_prefix_as_the_first_did(model):
    sources, settings = batch([4, 5, 6]), beam_settings(beam=3, nbest=3)
    search = BeamSearch(model, sources, settings, prefix=[6, 5])
    assert search.run() == search.run()


def test_pruned_hypotheses_are_no_prefix_of_a_result_and_lived_once(model):
    sources, settings = batch([4, 5, 6, 7]), beam_settings(beam=2, nbest=2)
    found, pruned = search_with_pruned(model, sources, settings)
    assert found == search_outputs(model, sources, settings)[0]
    assert pruned
    assert [each.log_prob for each in pruned] == sorted((each.log_prob for each in pruned), reverse=True)
    for each in pruned:
        assert END not in each.tokens
        assert not any(hypothesis.tokens[: len(each.tokens) + 1] == (*each.tokens, END) for hypothesis in found)
    lengths = [len(each.tokens) for each in pruned]
    assert all(lengths.count(length) <= 2 for length in lengths)
