from itertools import product

import numpy as np
import pytest
import torch

from antiphon.data.batch import Batch
from antiphon.data.vocab import END
from antiphon.models.language_model import LanguageModel
from antiphon.models.noisy_channel import NoisyChannel, Weights
from antiphon.models.transducer import Transducer
from antiphon.search.beam_search import BeamSearch, search_outputs
from antiphon.search.hypothesis import BeamSettings
from antiphon.search.rescoring import Conditioning, NoisyChannelRescorer, search_noisy_channel
from tests.search.test_beam_search import STATIC, assert_no_device_sync, assert_same_answers

SOURCE_SIZE, TARGET_SIZE = 9, 6
WIDE = {"beam": 300, "proposals": 300, "threshold": float("inf"), "max_length_ratio": 0.0, "max_length_extra": 4}


def enlarge(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
    return model.double().eval()


def components(seed=0, target_size=TARGET_SIZE, **channel_settings):
    torch.manual_seed(seed)
    sizes = {"hidden_size": 6, "embedding_size": 5}
    direct = enlarge(Transducer(SOURCE_SIZE, target_size, **sizes))
    channel = enlarge(Transducer(target_size, SOURCE_SIZE, encoder="unidirectional", **sizes, **channel_settings))
    return direct, channel, enlarge(LanguageModel(SOURCE_SIZE, target_size, layers=2, **sizes))


def combine(parts, weights, reading="last"):
    direct, channel, language_model = parts
    outputs = torch.arange(direct.target_logits.out_features)
    return NoisyChannel(
        direct,
        channel,
        language_model,
        output_in_channel=outputs,
        input_in_channel=torch.arange(SOURCE_SIZE),
        output_in_language_model=outputs,
        weights=Weights(*weights),
        reading=reading,
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
        for words in product(range(4, direct.target_logits.out_features), repeat=length):
            target = torch.tensor(words, dtype=torch.int32).numpy()
            there, back = Batch.of([source], [target]), Batch.of([target], [source])
            features = (
                direct.log_prob(there).item(),
                channel.log_prob(back).item(),
                language_model.log_prob(Batch.of([source[:0]], [target])).item(),
                float(length + 1),
            )
            scored.append((sum(w * f for w, f in zip(weights, features, strict=True)), (*words, END), features))
    return sorted(scored, reverse=True)


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0, 0.5), (0.0, 1.0, 0.7, 1.0), (1.0, 0.0, 0.5, 0.0)])
@pytest.mark.parametrize("reading", ["last", "anywhere"])
@pytest.mark.parametrize("seed", range(3))
def test_with_wide_beams_the_search_equals_brute_force(weights, reading, seed):
    parts = components(seed)
    (source,) = sources(3, seed=seed)
    model = combine(parts, weights, reading)
    (found,) = search_noisy_channel(model, Batch.of([source]), BeamSettings(nbest=5, **WIDE))
    listed = every_output(parts, weights, source, longest=4)[:5]
    assert [h.tokens for h in found] == [tokens for _, tokens, _ in listed]
    assert [h.score for h in found] == pytest.approx([score for score, _, _ in listed])
    for hypothesis, (_, _, features) in zip(found, listed, strict=True):
        assert hypothesis.features == pytest.approx(features)


@torch.no_grad()
def test_features_are_read_by_channel_and_language_model_before_outputs():
    _, channel, language_model = parts = components()
    sentences, features = sources(3, 4, seed=5), [sources(2, seed=6)[0] % 2 + 4, sources(1, seed=7)[0] % 2 + 4]
    batch = Batch.of([np.concatenate([tag, source]) for tag, source in zip(features, sentences, strict=True)])
    conditioning = Conditioning(Batch.of(features), Batch.of(features))
    settings = BeamSettings(nbest=3, **WIDE)
    found = search_noisy_channel(combine(parts, (1.0, 1.0, 1.0, 0.0)), batch, settings, conditioning)
    for tag, source, hypotheses in zip(features, sentences, found, strict=True):
        for hypothesis in hypotheses:
            target = np.array(hypothesis.tokens[:-1], np.int32)
            back = Batch.of([np.concatenate([tag, target])], [source])
            assert hypothesis.features[1] == pytest.approx(channel.log_prob(back).item())
            assert hypothesis.features[2] == pytest.approx(language_model.log_prob(Batch.of([tag], [target])).item())


@pytest.mark.parametrize("beam", [1, 4])
def test_the_direct_weight_alone_gives_the_direct_models_own_beam(beam):
    parts = components(target_size=12)
    batch = Batch.of(sources(5, 2, 8))
    settings = BeamSettings(beam=beam, proposals=beam, nbest=2)
    combined = search_noisy_channel(combine(parts, (1.0, 0.0, 0.0, 0.0)), batch, settings)
    direct = search_outputs(parts[0], batch, settings)
    assert [h[0].tokens for h in combined] == [h[0].tokens for h in direct]
    assert [h[0].score for h in combined] == pytest.approx([h[0].score for h in direct])


def test_a_batch_gives_what_single_sentences_give():
    model = combine(components(target_size=12), (1.0, 0.8, 0.6, 0.4))
    settings = BeamSettings(beam=3, proposals=6, nbest=3)
    inputs = sources(1, 7, 3, 0, 9)
    together = search_noisy_channel(model, Batch.of(inputs), settings)
    for source, found in zip(inputs, together, strict=True):
        (alone,) = search_noisy_channel(model, Batch.of([source]), settings)
        assert [h.tokens for h in found] == [h.tokens for h in alone]
        assert [h.score for h in found] == pytest.approx([h.score for h in alone])


@pytest.mark.parametrize("missing", ["channel", "language_model"])
def test_any_part_but_the_direct_model_may_be_missing(missing):
    direct, channel, language_model = components()
    parts = (direct, None if missing == "channel" else channel, None if missing == "language_model" else language_model)
    weights = (1.0, 0.0 if missing == "channel" else 1.0, 0.0 if missing == "language_model" else 1.0, 0.2)
    (source,) = sources(3)
    (found,) = search_noisy_channel(combine(parts, weights), Batch.of([source]), BeamSettings(nbest=3, **WIDE))
    listed = every_output((direct, channel, language_model), weights, source, longest=4)[:3]
    assert [h.tokens for h in found] == [tokens for _, tokens, _ in listed]


@pytest.mark.parametrize("settings", STATIC)
@pytest.mark.parametrize("weights", [(1.0, 0.8, 0.6, 0.4), (0.0, 1.0, 0.7, 1.0)])
@pytest.mark.parametrize("reading", ["last", "anywhere"])
def test_static_shapes_change_no_answer(settings, weights, reading):
    model = combine(components(target_size=12), weights, reading)
    batch, conditioning = features_of_batch()
    settings = BeamSettings(proposals=6, **settings)
    wanted = search_noisy_channel(model, batch, settings, conditioning)
    assert_same_answers(search_noisy_channel(model, batch, settings, conditioning, static_shapes=True), wanted)


def features_of_batch():
    batch = Batch.of(sources(5, 9, 3, 7))
    return batch, Conditioning(*[Batch.of([tag % 2 + 4 for tag in sources(2, 0, 1, 1)])] * 2)


@torch.inference_mode()
def test_a_step_of_static_shapes_has_no_device_sync_but_for_lost_cells(monkeypatch):
    monkeypatch.setattr("antiphon.nn.next_words.cell_blocks", lambda *_: [])  # kernels see to them on a GPU
    monkeypatch.setattr("antiphon.nn.next_words._SMALL_GATHER", 2**40)
    model = combine(components(target_size=12), (1.0, 0.8, 0.6, 0.4))
    batch, conditioning = features_of_batch()
    settings = BeamSettings(beam=4, proposals=6)
    rescorer = NoisyChannelRescorer(model, batch, settings, conditioning)
    rescorer.static_shapes = True
    assert_no_device_sync(BeamSearch(model.direct, batch, settings, rescorer, static_shapes=True))
