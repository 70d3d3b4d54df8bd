"""A transducer with a right-to-left twin: probabilities and search against brute force; what the halves do alone."""

import math
from itertools import product

import pytest
import torch

from antiphon.data.batch import Batch
from antiphon.decode.beam_search import BeamSearch, search_outputs
from antiphon.models.ensemble_model import Ensemble, MemberIds
from antiphon.models.transducer import Transducer, TwoWayTransducer
from antiphon.torch_free.vocab import END
from tests.decode.small_models import batch_of, pair, sources
from tests.networks import beam_settings, build_network, enlarge

LETTERS = (4, 5, 6)
WIDE = {"beam": 200, "threshold": math.inf, "max_length_ratio": 0.0, "max_length_extra": 4}


def two_way(seed=0, **settings):
    torch.manual_seed(seed)
    model = build_network(Transducer, 9, 7, **settings)
    torch.manual_seed(seed + 100)
    twin = build_network(Transducer, 9, 7, **settings)
    both = build_network(TwoWayTransducer, 9, 7, **settings)
    both.load_state_dict(model.state_dict() | {f"reverse.{name}": weight for name, weight in twin.state_dict().items()})
    return enlarge(both, 3.0).double().eval()


def mean_of_both(model, source, output):
    forward = Transducer.log_prob(model, pair(source, output)).item()
    backward = model.reverse.log_prob(pair(source[::-1], output[::-1])).item()
    return math.log((math.exp(forward) + math.exp(backward)) / 2)


def every_output(model, source, longest=3):
    outputs = (output for length in range(longest + 1) for output in product(LETTERS, repeat=length))
    return sorted(((mean_of_both(model, source, output), (*output, END)) for output in outputs), reverse=True)


def test_reversed_pairs_keep_end_symbols_and_padding_in_place():
    batch = Batch.of([[4, 5, 6], [4]], [[5], [6, 4]])
    assert batch.reversed().source.tolist() == Batch.of([[6, 5, 4], [4]]).source.tolist()
    assert batch.reversed().target.tolist() == Batch.of([], [[5], [4, 6]]).target.tolist()
    for tensor, twice in zip(batch, batch.reversed().reversed(), strict=True):
        assert torch.equal(tensor, twice)


@torch.no_grad()
@pytest.mark.parametrize("settings", [{}, {"transition": "geometric"}, {"context": "attention"}])
def test_the_probability_is_the_mean_of_both_directions(settings):
    model, inputs = two_way(**settings), sources(3, 2)
    batch = Batch.of(inputs, [[4, 5, 5], [6]])
    expected = [mean_of_both(model, inputs[0], (4, 5, 5)), mean_of_both(model, inputs[1], (6,))]
    assert model.log_prob(batch).tolist() == pytest.approx(expected, abs=1e-9)


@torch.no_grad()
def test_both_halves_learn_every_pair_in_training():
    model, (source,) = two_way(), sources(3)
    halves = Transducer.log_prob(model, pair(source, (4, 6))), model.reverse.log_prob(pair(source[::-1], (6, 4)))
    assert model.train().log_prob(pair(source, (4, 6))).item() == pytest.approx(sum(each.item() for each in halves) / 2)


@pytest.mark.parametrize("seed", range(3))
def test_with_wide_beams_the_search_equals_listing_every_output(seed):
    model, inputs = two_way(seed), sources(3, 4, seed=seed)
    found = search_outputs(model, batch_of(inputs), beam_settings(nbest=6, **WIDE))
    for source, outputs in zip(inputs, found, strict=True):
        listed = every_output(model, source)[:6]
        assert [each.tokens for each in outputs] == [tokens for _, tokens in listed]
        assert [each.log_prob for each in outputs] == pytest.approx([log_prob for log_prob, _ in listed], abs=1e-9)


@torch.inference_mode()
def test_an_output_that_only_the_twin_finds_is_judged_by_both():
    for seed in range(20):
        model, inputs = two_way(seed), sources(3, 4, seed=seed)
        batch, greedy = batch_of(inputs), beam_settings(beam=1)
        ours = BeamSearch(model, batch, greedy).run()
        theirs = search_outputs(model.reverse, batch.reversed(), greedy)
        for source, one, other, (best,) in zip(inputs, ours, theirs, search_outputs(model, batch, greedy), strict=True):
            known = {each.tokens[:-1] for each in one} | {each.tokens[-2::-1] for each in other}
            log_prob, tokens = max((mean_of_both(model, source, output), output) for output in known)
            assert (best.tokens, best.log_prob) == ((*tokens, END), pytest.approx(log_prob, abs=1e-9))


@torch.inference_mode()
def test_outputs_with_a_prefix_are_those_of_the_left_to_right_half():
    model, batch, settings = two_way(), batch_of(sources(3, 4)), beam_settings(nbest=3, **WIDE)
    assert search_outputs(model, batch, settings, [5]) == BeamSearch(model, batch, settings, prefix=[5]).run()


@torch.no_grad()
def test_an_ensemble_of_them_is_the_mean_of_an_ensemble_of_each_direction():
    members, (source,) = [two_way(1), two_way(2)], sources(3)
    same = MemberIds(torch.arange(9), torch.arange(7), torch.arange(8))
    both = Ensemble(members, [same, same])
    halves = [Ensemble([member.reverse for member in members], [same, same])]
    backward = halves[0].log_prob(pair(source[::-1], (6, 4))).item()
    forward = Ensemble.log_prob(_without_twins(members, same), pair(source, (4, 6))).item()
    expected = math.log((math.exp(forward) + math.exp(backward)) / 2)
    assert both.log_prob(pair(source, (4, 6))).item() == pytest.approx(expected, abs=1e-9)


def _without_twins(members, ids):
    alone = []
    for member in members:
        model = build_network(Transducer, 9, 7).double().eval()
        own = {name: weight for name, weight in member.state_dict().items() if not name.startswith("reverse.")}
        model.load_state_dict(own)
        alone.append(model)
    return Ensemble(alone, [ids, ids])
