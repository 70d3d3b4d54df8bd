"""Words outside the vocabulary are copied: training, scores and searches, against listing words and paths."""

import math
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from antiphon.data.batch import Batch
from antiphon.decode.beam_search import BeamSearch, search_outputs
from antiphon.decode.noisy_channel import search_noisy_channel
from antiphon.decode.noisy_channel_streams import NoisyChannelStreams
from antiphon.decode.sampling import sample_outputs
from antiphon.decode.streams import TransducerStreams
from antiphon.decode.thesis_searches import search_paths
from antiphon.lattice import best_path
from antiphon.models.ensemble_model import Ensemble, MemberIds
from antiphon.models.left_to_right import token_log_probs
from antiphon.models.noisy_channel import NoisyChannel
from antiphon.models.recurrent import LanguageModel
from antiphon.models.transducer import Transducer
from antiphon.serve.lattice_view import LatticeInput, LatticeView
from antiphon.torch_free.codec import Normalisation, PairCodec, TextCodec, Words
from antiphon.torch_free.hypothesis import Weights
from antiphon.torch_free.readers import Source
from antiphon.torch_free.stream_policies import BeamPolicy, GreedyPolicy
from antiphon.torch_free.streams import StreamGroup
from antiphon.torch_free.vocab import END, Vocab
from tests.lattice.every_path import listed_best, listed_log_marginal
from tests.networks import beam_settings, build_network

STEPS = Normalisation()
CODEC = PairCodec(
    TextCodec(STEPS, Words(), Vocab(["the", "saw", "long"])),
    TextCodec(STEPS, Words(), Vocab(["saw", "lynx"])),
    copies_words=True,
)
"""``saw`` is in both vocabularies, ``lynx`` only in the target's, ``the`` only in the source's."""
S, V = len(CODEC.source.vocab), len(CODEC.target.vocab)
NO_FEATURES = np.zeros((1, 0), np.int64)
SOURCE = "lynx saw Zoe Zoe the Yan"
WIDE = {"threshold": math.inf, "max_length_ratio": 0.0, "max_length_extra": 4}
MODELS = {
    "bidirectional": {},
    "unidirectional": {"encoder": "unidirectional"},
    "geometric": {"transition": "geometric", "final_write": "forced"},
    "context": {"context": "attention"},
}


def model_of(name="bidirectional", seed=0, **more):
    torch.manual_seed(seed)
    model = build_network(Transducer, S, V, **{"copy_words": True, **MODELS[name], **more}).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
        model.target_logits.bias[-1] += 2.0
    return model.eval()


def batch_of(*pairs):
    sources, targets = zip(*pairs, strict=True)
    return Batch.of_text(CODEC, [Source(text) for text in sources], targets)


def listed_moves(model, source, target):
    """Log scores of both moves in every cell of one pair, from its words and a softmax for each cell."""
    batch = batch_of((source, target))
    factors, context = model.encode(batch)
    state = model.target_state(batch.features)
    prefix = torch.where(batch.shifted_target < V, batch.shifted_target, 1) if model.attention else batch.shifted_target
    columns, _ = model.decode_prefix(prefix, state, context)
    classes = (factors.logits[0][:, None] + columns.logits[0]).log_softmax(2)
    words, outputs = [*source.split(), None], [*target.split(), "</s>"]
    log_token = torch.full(classes.shape[:2], -math.inf, dtype=torch.float64)
    for (i, word), (j, output) in product(enumerate(words), enumerate(outputs)):
        ids = END if output == "</s>" else CODEC.target.vocab.encode([output])[0]
        ways = [classes[i, j, ids]] if ids > 1 or output not in words else []
        ways += [classes[i, j, V]] if word == output else []
        log_token[i, j] = torch.logsumexp(torch.stack(ways), 0) if ways else -math.inf
    log_odds = model.emit_log_odds(factors.transition, columns.transition)[0]
    in_last_row = torch.arange(len(words))[:, None] == len(words) - 1
    log_emit, log_read = model.split_odds(log_odds, in_last_row)
    return log_emit + log_token, log_read


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_the_probability_of_a_target_equals_listing_every_path_and_every_position_of_a_word(name):
    model = model_of(name)
    pairs = [
        (SOURCE, "Zoe saw lynx"),
        (SOURCE, "Zoe Zoe Yan"),
        (SOURCE, "the Yan"),
        ("Yan Zoe long", "Zoe elsewhere lynx saw"),
        ("Zoe", ""),
        ("the", "the the"),
    ]
    together = model.log_prob(batch_of(*pairs))
    for found, pair in zip(together, pairs, strict=True):
        torch.testing.assert_close(found, listed_log_marginal(*listed_moves(model, *pair)))


@torch.no_grad()
def test_different_unknown_words_have_different_probabilities_and_the_same_as_when_renamed():
    model = model_of()
    both = model.log_prob(batch_of(("Zoe saw Yan", "Zoe"), ("Zoe saw Yan", "Yan"), ("Ann saw Bob", "Bob")))
    assert abs(float(both[0] - both[1])) > 0.1
    assert float(both[1]) == pytest.approx(float(both[2]))


def test_words_that_cannot_be_copied_in_order_are_unknown_as_few_as_possible():
    batch = batch_of(("Ann Bob Cid Dan", "Dan Ann Bob saw Cid nowhere"))
    assert batch.copied.tolist() == [[V, V + 1, V + 2, V + 3, -1]]
    assert batch.target.tolist() == [[1, V, V + 1, 4, V + 2, 1, END]]
    assert model_of().log_prob(batch).isfinite().all()


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_token_by_token_an_output_has_the_probability_of_training(name):
    model = model_of(name)
    batch = batch_of((SOURCE, "Zoe saw Yan"), ("Yan lynx", "lynx Yan"), ("the Yan long", "saw saw"))
    torch.testing.assert_close(token_log_probs(model, batch).sum(1), model.log_prob(batch))


@torch.no_grad()
def test_the_probabilities_of_all_words_sum_to_the_probability_of_writing():
    model = model_of("geometric")
    batch = batch_of((SOURCE, ""), ("Yan", ""))
    memory, state = model.start(batch)
    log_next, _ = model.step(memory, state, torch.full((2,), 2), torch.arange(2))
    assert log_next.shape == (2, V + 7)
    assert (log_next.exp().sum(1) < 1 + 1e-9).all()
    unfinished = log_next.exp().sum(1) + _lost(model, batch)
    torch.testing.assert_close(unfinished, torch.ones(2).double())


def _lost(model, batch):
    """The probability of an end symbol in a row that is not the last, and of a copy in the last, which has no word."""
    factors, _ = model.encode(batch)
    columns, _ = model.decode_prefix(torch.full((2, 1), 2), model.target_state(batch.features))
    end, copy = (factors.logits + columns.logits).softmax(2)[:, :, [END, V]].unbind(2)
    p = torch.sigmoid(model.transition.constant_log_odds)
    lost = []
    for b, length in enumerate(batch.source_lengths.tolist()):
        early = sum((1 - p) ** i * p * end[b, i] for i in range(length - 1))
        lost.append(early + (1 - p) ** (length - 1) * copy[b, length - 1])
    return torch.stack(lost)


def every_text(source, longest):
    """All outputs of words of the target vocabulary and of the source."""
    words = sorted({"saw", "lynx", *source.split()})
    for length in range(longest):
        yield from product(words, repeat=length)


@torch.no_grad()
def listed_outputs(score, source, longest=4):
    """Every output that can be copied in order, with its score, best first."""
    scored = []
    for words in every_text(source, longest):
        batch = batch_of((source, " ".join(words)))
        if 1 not in batch.target:
            scored.append((float(score(batch, " ".join(words))), list(words)))
    return sorted(scored, reverse=True)


def written(hypothesis, source):
    return CODEC.decode_copied(hypothesis.tokens, hypothesis.alignment, source.split())


@pytest.mark.parametrize("static_shapes", [False, True])
@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_a_wide_beam_finds_the_most_probable_of_all_texts(name, static_shapes):
    model, source = model_of(name), "Zoe saw Yan"
    settings = beam_settings(beam=150, nbest=8, **WIDE)
    (found,) = BeamSearch(model, batch_of((source, "")), settings, static_shapes=static_shapes).run()
    listed = listed_outputs(lambda batch, _: model.log_prob(batch), source)[:8]
    assert [written(hypothesis, source) for hypothesis in found] == [words for _, words in listed]
    assert [hypothesis.log_prob for hypothesis in found] == pytest.approx([score for score, _ in listed])


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_a_wide_search_over_paths_finds_the_text_with_the_best_path(name):
    model, source = model_of(name), "Zoe saw Yan"
    (found,) = search_paths(model, batch_of((source, "")), beam_settings(beam=200, nbest=5, **WIDE))
    listed = listed_outputs(lambda _, target: listed_best(*listed_moves(model, source, target)), source)[:5]
    assert [written(hypothesis, source) for hypothesis in found] == [words for _, words in listed]
    assert [hypothesis.log_prob for hypothesis in found] == pytest.approx([score for score, _ in listed])
    batch = batch_of((source, " ".join(written(found[0], source))))
    path = best_path(*model.moves(batch), batch.source_lengths, batch.target_lengths)
    assert tuple(path.alignment[0].tolist()) == found[0].alignment


def test_a_batch_and_a_long_source_give_what_single_sources_give():
    model, settings = model_of(), beam_settings(beam=4, nbest=2)
    sources = [SOURCE, "Yan", " ".join(["Zoe saw Yan lynx Ann"] * 12)]
    together = search_outputs(model, batch_of(*((source, "") for source in sources)), settings)
    for source, found in zip(sources, together, strict=True):
        (alone,) = search_outputs(model, batch_of((source, "")), settings)
        assert [written(each, source) for each in found] == [written(each, source) for each in alone]
        assert [each.log_prob for each in found] == pytest.approx([each.log_prob for each in alone])


def test_samples_are_words_with_their_probabilities():
    model = model_of()
    batch = batch_of(("Zoe saw Yan", ""))
    (drawn,) = sample_outputs(model, batch, beam_settings(), 40, seed=1)
    assert any("Zoe" in written(each, "Zoe saw Yan") for each in drawn)
    for each in drawn[:5]:
        text = " ".join(written(each, "Zoe saw Yan"))
        assert each.log_prob == pytest.approx(model.log_prob(batch_of(("Zoe saw Yan", text))).item())


def read_all(decoder, source):
    stream = StreamGroup(decoder, CODEC, 1)
    return [word for token in source.split() for word in stream.read([token])[0]] + stream.finish()[0]


@pytest.mark.parametrize("seed", range(4))
def test_a_stream_that_holds_back_what_is_undecided_writes_what_the_search_finds(seed):
    model = model_of("unidirectional", seed)
    settings = beam_settings(beam=60, threshold=50.0, max_length_ratio=1.0, max_length_extra=1)
    decoder = BeamPolicy(TransducerStreams(model), settings, NO_FEATURES)
    source = "Zoe saw Yan Zoe"
    (found,) = search_outputs(model, batch_of((source, "")), settings)
    assert read_all(decoder, source) == written(found[0], source)


def test_a_greedy_stream_copies_the_word_just_read():
    model = model_of("unidirectional")
    with torch.no_grad():
        model.target_logits.bias[-1] += 40.0
        model.transition.output.weight.zero_()
        model.transition.output.bias.fill_(1.0)
    decoder = GreedyPolicy(TransducerStreams(model), beam_settings(max_length_ratio=1.0), NO_FEATURES)
    stream = StreamGroup(decoder, CODEC, 1)
    for word in ("Zoe", "the", "saw", "Zoe"):
        assert set(stream.read([word])[0]) == {word}


def channel_of(model):
    torch.manual_seed(5)
    channel = build_network(Transducer, V, S, encoder="unidirectional").double().eval()
    language = build_network(LanguageModel, S, V).double().eval()
    ids = torch.arange(V)
    return NoisyChannel(
        model,
        channel,
        language,
        output_in_channel=ids,
        input_in_channel=torch.arange(S),
        output_in_language_model=ids,
        weights=Weights(1.0, 0.7, 0.5, 0.2),
    )


@torch.no_grad()
def test_a_noisy_channel_finds_the_best_of_all_texts():
    combined, source = channel_of(model_of()), "Zoe saw Yan"
    settings = beam_settings(beam=150, proposals=150, nbest=6, **WIDE)
    (found,) = search_noisy_channel(combined, batch_of((source, "")), settings)
    listed = listed_outputs(lambda batch, _: combined(batch), source)[:6]
    assert [written(hypothesis, source) for hypothesis in found] == [words for _, words in listed]
    assert [hypothesis.score for hypothesis in found] == pytest.approx([score for score, _ in listed])


def test_a_stream_of_a_noisy_channel_writes_what_its_search_finds():
    combined, source = channel_of(model_of("unidirectional")), "Zoe saw Yan"
    settings = beam_settings(beam=150, proposals=150, threshold=60.0, max_length_ratio=0.0, max_length_extra=4)
    (found,) = search_noisy_channel(combined, batch_of((source, "")), settings)
    decoder = NoisyChannelStreams(combined, settings, NO_FEATURES)
    assert read_all(decoder, source) == written(found[0], source)


@pytest.mark.parametrize("others_copy", [True, False])
@torch.no_grad()
def test_an_ensemble_averages_the_probabilities_of_copied_words(others_copy):
    one, other = model_of(), model_of(seed=1, copy_words=others_copy)
    swapped = torch.tensor([0, 1, 2, 3, 5, 4])
    features = torch.arange(4)
    ids = [MemberIds(torch.arange(S), table, features) for table in (torch.arange(V), swapped)]
    ensemble = Ensemble([one, other], ids)
    batch = batch_of(("Zoe saw Yan", "Yan"))
    memory, state = ensemble.start(batch)
    log_next, state = ensemble.step(memory, state, torch.tensor([2]), torch.tensor([0]))
    log_copied, _ = ensemble.step(memory, state, torch.tensor([V + 2]), torch.tensor([0]))
    assert log_next.shape == log_copied.shape == (1, V + 4)
    alone = one.step(*one.start(batch), torch.tensor([2]), torch.tensor([0]))[0].exp()
    in_their_ids = batch._replace(copied=torch.where(batch.copied == 4, 5, batch.copied))
    theirs = other.step(*other.start(in_their_ids), torch.tensor([2]), torch.tensor([0]))[0].exp()
    expected = (alone[0, V + 2] + (theirs[0, V + 2] if others_copy else 0.0)) / 2
    assert log_next[0, V + 2].exp() == pytest.approx(float(expected))
    assert log_next[0, 5].exp() == pytest.approx(float(alone[0, 5] + theirs[0, 4]) / 2)


@torch.no_grad()
def test_the_lattice_that_a_page_shows_has_the_copied_words():
    model, source = model_of(), "Zoe saw Yan"
    view = LatticeView(SimpleNamespace(codec=CODEC), model, LatticeInput(source.split(), ["Yan", "saw"]))
    assert view.log_prob == pytest.approx(model.log_prob(batch_of((source, "Yan saw"))).item())
    memory, state = model.start(batch_of((source, "")))
    log_next, _ = model.step(memory, state, torch.tensor([2]), torch.tensor([0]))
    shown = dict(map(tuple, view.next_tokens(0, 20)["summed"]))
    assert shown["Yan"] == pytest.approx(log_next[0, V + 2].exp().item(), abs=1e-6)
    assert shown["saw"] == pytest.approx(log_next[0, 4].exp().item(), abs=1e-6)
