from dataclasses import replace
from functools import partial
from itertools import count, product

import numpy as np
import pytest
import torch

from antiphon.data.batch import Batch
from antiphon.decode.beam_search import BeamSearch, search_outputs
from antiphon.decode.noisy_channel import (
    NoisyChannelRescorer,
    rescore_outputs,
    search_noisy_channel,
    search_with_pruned,
)
from antiphon.models.left_to_right import output_scorer
from antiphon.models.noisy_channel import NoisyChannel
from antiphon.models.recurrent import LanguageModel
from antiphon.models.transducer import Transducer
from antiphon.torch_free.hypothesis import Weights
from antiphon.torch_free.suffix_rule import Rescoring, add_rules, mix_log_prob
from antiphon.torch_free.vocab import END, UNKNOWN
from tests.decode.small_models import batch_of, features_of
from tests.decode.test_beam_search import STATIC, assert_no_device_sync, assert_same_answers
from tests.networks import beam_settings, build_network

SOURCE_SIZE, TARGET_SIZE = 9, 6
COPYING = {"feature_size": 8, "direct_settings": {"copy_unknown": True}, "copy_unknown": True}
CHANNEL_FEATURES = torch.tensor([0, 1, 2, 3, 7, 6, 5, 4])
LANGUAGE_FEATURES = torch.tensor([0, 1, 2, 3, 5, UNKNOWN, 4, 6])
WIDE = {"beam": 300, "proposals": 300, "threshold": float("inf"), "max_length_ratio": 0.0, "max_length_extra": 4}


def enlarge(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
    return model.double().eval()


def components(seed=0, target_size=TARGET_SIZE, feature_size=0, direct_settings=None, **channel_settings):
    torch.manual_seed(seed)
    sizes = {"hidden_size": 6, "embedding_size": 5, "feature_size": feature_size}
    direct = build_network(Transducer, SOURCE_SIZE, target_size, **sizes, **(direct_settings or {}))
    channel = build_network(
        Transducer,
        target_size,
        SOURCE_SIZE,
        encoder="unidirectional",
        **sizes,
        **channel_settings,
    )
    language_model = build_network(LanguageModel, SOURCE_SIZE, target_size, layers=2, **sizes)
    return enlarge(direct), enlarge(channel), enlarge(language_model)


def combine(parts, weights):
    direct, channel, language_model = parts
    outputs = torch.arange(direct.target_logits.out_features)
    return NoisyChannel(
        direct,
        channel,
        language_model,
        output_in_channel=outputs,
        input_in_channel=torch.arange(SOURCE_SIZE),
        output_in_language_model=outputs,
        features_in_channel=CHANNEL_FEATURES,
        features_in_language_model=LANGUAGE_FEATURES,
        weights=Weights(*weights),
    )


def sources(*lengths, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(4, SOURCE_SIZE, (length,), generator=generator).numpy() for length in lengths]


@torch.no_grad()
def every_output(parts, weights, source, longest):
    """Every output up to a length, with its objective and parts, each model asked from scratch."""
    direct, channel, language_model = parts
    scored = []
    for length in range(longest):
        tokens = [UNKNOWN] * direct.copies_unknown + [*range(4, direct.target_logits.out_features)]
        for words in product(tokens, repeat=length):
            target = np.array(words, np.int32)
            given = features_of(source)
            features = (
                direct.log_prob(Batch.of([source], [target], [given])).item(),
                channel.log_prob(Batch.of([target], [source], [CHANNEL_FEATURES.numpy()[given]])).item(),
                language_model.log_prob(Batch.of([source[:0]], [target], [LANGUAGE_FEATURES.numpy()[given]])).item(),
                float(length + 1),
            )
            scored.append((sum(w * f for w, f in zip(weights, features, strict=True)), (*words, END), features))
    return sorted(scored, reverse=True)


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0, 0.5), (0.0, 1.0, 0.7, 1.0), (1.0, 0.0, 0.5, 0.0)])
@pytest.mark.parametrize(("seed", "settings"), [(0, {}), (1, {}), (2, COPYING)])
def test_with_wide_beams_the_search_equals_brute_force(weights, seed, settings):
    parts = components(seed, **settings)
    (source,) = sources(3, seed=seed)
    model = combine(parts, weights)
    (found,) = search_noisy_channel(model, batch_of([source]), beam_settings(nbest=5, **WIDE))
    listed = every_output(parts, weights, source, longest=4)[:5]
    assert [h.tokens for h in found] == [tokens for _, tokens, _ in listed]
    assert [h.score for h in found] == pytest.approx([score for score, _, _ in listed])
    for hypothesis, (_, _, features) in zip(found, listed, strict=True):
        assert hypothesis.features == pytest.approx(features)


@torch.inference_mode()
def test_giving_up_on_one_long_input_ends_no_other_of_a_noisy_channel(monkeypatch):
    monkeypatch.setattr("antiphon.decode.beam_search.LONG_SOURCE", 4)
    monkeypatch.setattr("antiphon.decode.beam_search.STUCK_AFTER", 2)
    row = count()
    monkeypatch.setattr(
        BeamSearch, "_furthest_rows", lambda search, _: torch.tensor([0, next(row)])[-len(search.sentences) :]
    )
    model, inputs, settings = combine(components(), (1.0, 1.0, 1.0, 9.0)), sources(30, 28), beam_settings(beam=4)
    stuck, other = search_noisy_channel(model, batch_of(inputs), settings)
    assert all(len(hypothesis.tokens) <= 4 for hypothesis in stuck)
    assert max(len(hypothesis.tokens) for hypothesis in other) > 4
    assert_same_answers([other], search_noisy_channel(model, batch_of(inputs[1:]), settings))


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0, 0.5), (0.0, 1.0, 0.7, 1.0), (1.0, 0.0, 0.0, 0.0)])
@pytest.mark.parametrize("rule_weight", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("beam", [WIDE, {"beam": 2, "proposals": 2, "max_length_ratio": 0.0, "max_length_extra": 4}])
def test_suffix_rules_are_a_part_of_the_direct_model(weights, rule_weight, beam):
    parts, (source,), answer = components(), sources(3), (5, 4, 4, END)
    model, batch, settings = combine(parts, weights), batch_of([source]), beam_settings(nbest=3, **beam)
    (alone,) = search_noisy_channel(model, batch, settings)
    rescoring = Rescoring(partial(rescore_outputs, model, batch, settings), model.weights)
    (found,) = add_rules(output_scorer(parts[0], batch), [alone], [answer], rule_weight, 3, rescoring)
    mixed = []
    for _, tokens, (direct, *others) in every_output(parts, weights, source, longest=4):
        features = mix_log_prob(direct, rule_weight, is_answer=tokens == answer), *others
        mixed.append((model.weights.weigh(features), tokens, features))
    known = {answer, *(each.tokens for each in alone)}
    expected = sorted((each for each in mixed if beam is WIDE or each[1] in known), reverse=True)[: len(found)]
    assert answer in known - {each.tokens for each in alone}  # the search alone has missed it
    assert [each.score for each in found] == pytest.approx([score for score, _, _ in expected])
    assert found[0].tokens == expected[0][1]
    listed = {tokens: features for _, tokens, features in mixed}
    for each in found:
        assert each.features == pytest.approx(listed[each.tokens])
        assert each.log_prob == each.features[0]


@torch.inference_mode()
@pytest.mark.parametrize("length_normalisation", [0.0, 1.0])
def test_where_only_the_direct_model_weighs_it_answers_as_it_does_alone(length_normalisation):
    parts, batch = components(2), batch_of(sources(3, 6, 5, seed=2))
    settings = beam_settings(beam=3, proposals=5, nbest=3, length_normalisation=length_normalisation)
    model = combine(parts, (2.0, 0.0, 0.0, 0.0))
    alone = search_outputs(parts[0], batch, settings)
    for found, outputs in zip(search_noisy_channel(model, batch, settings), alone, strict=True):
        assert [(each.tokens, each.score) for each in found] == [(each.tokens, each.score) for each in outputs]
        assert all(np.isfinite(each.features).all() and len(each.features) == 4 for each in found)


@torch.inference_mode()
@pytest.mark.parametrize("settings", [{}, COPYING])
@pytest.mark.parametrize("weights", [(1.0, 0.8, 0.7, 0.5), (0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0)])
def test_outputs_of_the_direct_model_get_the_scores_of_all_models(settings, weights):
    parts, search = components(1, **settings), beam_settings(beam=2, proposals=2, nbest=4)
    inputs, model = sources(3, 6, seed=1), combine(parts, weights)
    batch = batch_of(inputs)
    rescored = NoisyChannelRescorer(model, batch, search).rescore(search_outputs(parts[0], batch, search))
    for source, found in zip(inputs, rescored, strict=True):
        assert len(found) > 1
        for each in found:
            pair = Batch.of([source], [np.array(each.tokens[:-1], np.int32)], [features_of(source)])
            assert each.score == pytest.approx(model(pair).item())


def test_what_the_direct_model_finds_and_all_models_prefer_is_not_missed():
    batch, narrow = Batch.of(sources(5, 7, 3, 6, 4, 8, seed=4)), beam_settings(beam=2, proposals=2)
    model = combine(components(4, target_size=12), (1.0, 1.0, 1.0, 0.5))
    alone, both = (
        [found[0].score for found in search_noisy_channel(model, batch, replace(narrow, direct_outputs=count))]
        for count in (0, 10)
    )
    assert all(one <= other + 1e-9 for one, other in zip(alone, both, strict=True))
    assert sum(both) > sum(alone) + 1.0


def test_outputs_that_end_compete_without_the_whole_of_their_channel_score():
    """The log probability of the input is low for every output; it decides between those that have ended, not when."""
    model, batch = combine(components(target_size=12), (1.0, 1.0, 0.0, 0.0)), Batch.of(sources(6))
    settings, seen = beam_settings(beam=4, proposals=20), []

    class Recorded(NoisyChannelRescorer):
        def choose(self, *given):
            chosen, after = super().choose(*given)
            seen.append((chosen, self.search_score(chosen, chosen.value)))
            return chosen, after

    with torch.inference_mode():
        BeamSearch(model.direct, batch, settings, Recorded(model, batch, settings)).run()
    for chosen, search_score in seen:
        ends = (chosen.token == END) & chosen.value.isfinite()
        direct, channel = chosen.features[ends].unbind(-1)[:2]
        compared = chosen.value[ends] - direct
        assert (compared <= 0).all()
        assert (compared > channel / 2).all()
        torch.testing.assert_close(search_score[ends], direct + channel)


def test_every_part_has_ids_of_its_own_for_the_same_features():
    model = combine(components(feature_size=8), (1.0, 1.0, 1.0, 0.0))
    source, *_ = sources(3, seed=5)
    settings = beam_settings(beam=4, proposals=6)

    def parts_with(*given):
        batch = Batch.of([source], None, [np.array(given, np.int32)])
        return np.array(search_noisy_channel(model, batch, settings)[0][0].features)

    assert (parts_with(4) != parts_with())[:3].all()
    assert parts_with(5, 6) == pytest.approx(parts_with(6, 5))
    assert parts_with(UNKNOWN) == pytest.approx(parts_with())


@pytest.mark.parametrize("beam", [1, 4])
def test_the_direct_weight_alone_gives_the_direct_models_own_beam(beam):
    parts = components(target_size=12)
    batch = Batch.of(sources(5, 2, 8))
    settings = beam_settings(beam=beam, proposals=beam, nbest=2)
    combined = search_noisy_channel(combine(parts, (1.0, 0.0, 0.0, 0.0)), batch, settings)
    direct = search_outputs(parts[0], batch, settings)
    assert [h[0].tokens for h in combined] == [h[0].tokens for h in direct]
    assert [h[0].score for h in combined] == pytest.approx([h[0].score for h in direct])


def test_every_output_begins_with_the_prefix():
    model, prefix = combine(components(target_size=12), (1.0, 0.2, 0.2, 0.0)), (5, 6)
    for outputs in search_noisy_channel(model, batch_of(sources(2, 3)), beam_settings(nbest=4, **WIDE), prefix):
        assert outputs
        assert all(each.tokens[:2] == prefix for each in outputs)


@pytest.mark.parametrize("parts", [{}, COPYING], ids=["plain", "copying"])
def test_a_batch_gives_what_single_sentences_give(parts):
    model = combine(components(target_size=12, **parts), (1.0, 0.8, 0.6, 0.4))
    settings = beam_settings(beam=3, proposals=6, nbest=3)
    inputs = sources(1, 7, 3, 0, 9)
    together = search_noisy_channel(model, batch_of(inputs), settings)
    for source, found in zip(inputs, together, strict=True):
        (alone,) = search_noisy_channel(model, batch_of([source]), settings)
        assert [h.tokens for h in found] == [h.tokens for h in alone]
        assert [h.score for h in found] == pytest.approx([h.score for h in alone])


def components_without(missing):
    """All three models, those without one of them, and weights in which its own is 0."""
    direct, channel, language_model = components()
    parts = (direct, None if missing == "channel" else channel, None if missing == "language_model" else language_model)
    weights = (1.0, 0.0 if missing == "channel" else 1.0, 0.0 if missing == "language_model" else 1.0, 0.2)
    return (direct, channel, language_model), parts, weights


@pytest.mark.parametrize("missing", ["channel", "language_model"])
def test_any_part_but_the_direct_model_may_be_missing(missing):
    models, parts, weights = components_without(missing)
    (source,) = sources(3)
    (found,) = search_noisy_channel(combine(parts, weights), Batch.of([source]), beam_settings(nbest=3, **WIDE))
    listed = every_output(models, weights, source, longest=4)[:3]
    assert [h.tokens for h in found] == [tokens for _, tokens, _ in listed]


@pytest.mark.parametrize("settings", STATIC)
@pytest.mark.parametrize("weights", [(1.0, 0.8, 0.6, 0.4), (0.0, 1.0, 0.7, 1.0)])
def test_static_shapes_change_no_answer(settings, weights):
    model = combine(components(target_size=12, **COPYING), weights)
    batch = batch_of(sources(5, 9, 3, 7))
    settings = beam_settings(proposals=6, **settings)
    wanted = search_noisy_channel(model, batch, settings)
    assert_same_answers(search_noisy_channel(model, batch, settings, static_shapes=True), wanted)


def test_what_a_search_drops_does_not_depend_on_how_few_outputs_are_wanted():
    model, batch = combine(components(), (1.0, 1.0, 0.5, 0.3)), batch_of(sources(4))
    settings = beam_settings(beam=3, proposals=6, direct_outputs=0)
    wide_found, wide_pruned = search_with_pruned(model, batch, settings.for_rescoring())
    found, pruned = search_with_pruned(model, batch, settings)
    assert found == search_noisy_channel(model, batch, settings)[0] == wide_found[:1]
    assert pruned == wide_pruned


@torch.inference_mode()
def test_a_step_of_static_shapes_has_no_device_sync_but_for_lost_cells(monkeypatch):
    monkeypatch.setattr("antiphon.nn.factored_softmax.cell_blocks", lambda *_: [])  # kernels see to them on a GPU
    monkeypatch.setattr("antiphon.nn.factored_softmax._SMALL_GATHER", 2**40)
    model = combine(components(target_size=12, **COPYING), (1.0, 0.8, 0.6, 0.4))
    batch = batch_of(sources(5, 9, 3, 7))
    settings = beam_settings(beam=4, proposals=6)
    rescorer = NoisyChannelRescorer(model, batch, settings)
    assert_no_device_sync(BeamSearch(model.direct, batch, settings, rescorer, static_shapes=True))
