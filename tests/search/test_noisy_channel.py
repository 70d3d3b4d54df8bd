from itertools import product

import numpy as np
import pytest
import torch

from antiphon.data.batch import Batch
from antiphon.data.vocab import END
from antiphon.lattice import best_path
from antiphon.models.language_model import LanguageModel
from antiphon.models.noisy_channel import Channel, NoisyChannel, Weights
from antiphon.models.transducer import Transducer
from antiphon.search.hypothesis import BeamSettings
from antiphon.search.noisy_channel import Conditioning, NoisyChannelSearch, search_noisy_channel
from antiphon.search.transducer_beam import search_transducer
from tests.search.test_transducer_beam import FIXED, assert_same_answers, assert_the_host_never_waits

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
            path = best_path(*direct.moves(there), there.source_lengths, there.target_lengths)
            features = (
                path.log_score.item(),
                channel.log_prob(back).item(),
                language_model.log_prob(Batch.of([source[:0]], [target])).item(),
                float(length + 1),
            )
            scored.append((sum(w * f for w, f in zip(weights, features, strict=True)), (*words, END), features))
    return sorted(scored, reverse=True)


@pytest.mark.parametrize("settings", [{}, {"final_emit": "forced"}, {"transition": "geometric"}, {"layers": 2}])
@torch.no_grad()
def test_incremental_channel_scores_equal_a_fresh_forward_pass_for_every_prefix(settings):
    _, model, _ = components(**settings)
    (source,) = sources(5)
    target = torch.tensor([4, 5, 5, 4], dtype=torch.int32).numpy()
    batch = Batch.of([target], [source])
    moves = model.moves(batch)
    channel = Channel(model, batch.target)
    row = channel.begin(1)
    standing = None
    only = torch.zeros(1, 1, dtype=torch.long)
    anywhere = torch.full((6,), float("-inf"), dtype=torch.float64)
    for j, token in enumerate(batch.source[0]):
        row = channel.append(row, only, token[None, None], only[0])
        standing = slow_row(standing, moves.log_write[0, j], None if j == 0 else moves.log_shift[0, j - 1])
        last = standing + moves.log_write[0, j]
        anywhere = torch.logaddexp(anywhere, last)
        torch.testing.assert_close(row.last[0, 0], last)
        torch.testing.assert_close(row.anywhere[0, 0], anywhere)
    torch.testing.assert_close(row.last[:, 0, -1], model.log_prob(batch))


def slow_row(before, log_write, log_shift_before):
    """``standing`` of one more row, cell by cell."""
    standing = []
    for i in range(len(log_write)):
        arriving = (
            torch.tensor(0.0 if i == 0 else float("-inf"), dtype=torch.float64)
            if before is None
            else before[i] + log_shift_before[i]
        )
        standing.append(arriving if i == 0 else torch.logaddexp(arriving, standing[-1] + log_write[i - 1]))
    return torch.stack(standing)


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
    assert [h.log_score for h in found] == pytest.approx([score for score, _, _ in listed])
    for hypothesis, (_, _, features) in zip(found, listed, strict=True):
        assert hypothesis.parts == pytest.approx(features)


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
            assert hypothesis.parts[1] == pytest.approx(channel.log_prob(back).item())
            assert hypothesis.parts[2] == pytest.approx(language_model.log_prob(Batch.of([tag], [target])).item())


@pytest.mark.parametrize("beam", [1, 4])
def test_the_direct_weight_alone_gives_the_direct_models_own_beam(beam):
    parts = components(target_size=12)
    batch = Batch.of(sources(5, 2, 8))
    settings = BeamSettings(beam=beam, proposals=beam, nbest=2)
    combined = search_noisy_channel(combine(parts, (1.0, 0.0, 0.0, 0.0)), batch, settings)
    direct = search_transducer(parts[0], batch, settings)
    assert [h[0].tokens for h in combined] == [h[0].tokens for h in direct]
    assert [h[0].rows for h in combined] == [h[0].rows for h in direct]
    assert [h[0].log_score for h in combined] == pytest.approx([h[0].log_score for h in direct])


def test_a_batch_gives_what_single_sentences_give():
    model = combine(components(target_size=12), (1.0, 0.8, 0.6, 0.4))
    settings = BeamSettings(beam=3, proposals=6, nbest=3)
    inputs = sources(1, 7, 3, 0, 9)
    together = search_noisy_channel(model, Batch.of(inputs), settings)
    for source, found in zip(inputs, together, strict=True):
        (alone,) = search_noisy_channel(model, Batch.of([source]), settings)
        assert [h.tokens for h in found] == [h.tokens for h in alone]
        assert [h.log_score for h in found] == pytest.approx([h.log_score for h in alone])


@pytest.mark.parametrize("missing", ["channel", "language_model"])
def test_any_part_but_the_direct_model_may_be_missing(missing):
    direct, channel, language_model = components()
    parts = (direct, None if missing == "channel" else channel, None if missing == "language_model" else language_model)
    weights = (1.0, 0.0 if missing == "channel" else 1.0, 0.0 if missing == "language_model" else 1.0, 0.2)
    (source,) = sources(3)
    (found,) = search_noisy_channel(combine(parts, weights), Batch.of([source]), BeamSettings(nbest=3, **WIDE))
    listed = every_output((direct, channel, language_model), weights, source, longest=4)[:3]
    assert [h.tokens for h in found] == [tokens for _, tokens, _ in listed]


@pytest.mark.parametrize("settings", FIXED)
@pytest.mark.parametrize("weights", [(1.0, 0.8, 0.6, 0.4), (0.0, 1.0, 0.7, 1.0)])
@pytest.mark.parametrize("reading", ["last", "anywhere"])
@torch.no_grad()
def test_fixed_shapes_change_no_answer(settings, weights, reading):
    model = combine(components(target_size=12), weights, reading)
    batch, conditioning = (
        Batch.of(sources(5, 9, 3, 7)),
        Conditioning(*[Batch.of([tag % 2 + 4 for tag in sources(2, 0, 1, 1)])] * 2),
    )
    settings = BeamSettings(proposals=6, **settings)
    wanted = search_noisy_channel(model, batch, settings, conditioning)
    found = NoisyChannelSearch(model, batch, settings, conditioning, fixed_shapes=True).run()
    assert_same_answers(found, wanted)


@torch.no_grad()
def test_the_host_never_waits_for_a_column_of_fixed_shapes(monkeypatch):
    # On a GPU a kernel computes the normalisers of extreme logits where here the host steps in.
    monkeypatch.setattr(
        "antiphon.models.noisy_channel.log_normalisers",
        lambda source, target: (source[:, :, None] + target[:, None]).logsumexp(3),
    )
    model = combine(components(target_size=12), (1.0, 0.8, 0.6, 0.4))
    settings = BeamSettings(beam=3, proposals=6, outputs=5)
    search = NoisyChannelSearch(model, Batch.of(sources(5, 9, 2)), settings, None, fixed_shapes=True)
    assert_the_host_never_waits(search, monkeypatch)
