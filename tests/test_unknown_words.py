"""Models with attention write words outside the vocabulary; lists of candidates hold each text once."""

import math
from itertools import product

import pytest
import torch

from antiphon.api.model import NeuralModel
from antiphon.data.batch import Batch
from antiphon.data.corpus import Corpus
from antiphon.decode.alignments import attended_positions
from antiphon.models.ensemble_model import Ensemble, MemberIds
from antiphon.models.recurrent import Attention, EncoderDecoder
from antiphon.models.transformer import Transformer
from antiphon.recipe.schema import Recipe
from antiphon.runs.build import build_beam, build_search
from antiphon.torch_free.codec import Normalisation, PairCodec, TextCodec, Words
from antiphon.torch_free.readers import Pair, Source
from antiphon.torch_free.results import Candidate, covering, merge_equal_texts
from antiphon.torch_free.vocab import END, UNKNOWN, Vocab
from antiphon.training.task import GenerationValidation, OutputMetrics
from tests.networks import beam_settings, build_network

STEPS = Normalisation()
CODEC = PairCodec(
    TextCodec(STEPS, Words(), Vocab(["the", "saw"])), TextCodec(STEPS, Words(), Vocab(["saw", "Zoe", "long"]))
)
S, V = len(CODEC.source.vocab), len(CODEC.target.vocab)
KINDS = {"attention": Attention, "transformer": Transformer}
SOURCE = "the Quendon saw Zoe"


def network(kind, seed=0, scale=3.0):
    """A network that likes to write unknown words."""
    torch.manual_seed(seed)
    module = build_network(kind, S, V).double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(scale)
        module.output.bias[UNKNOWN] += 4.0
    return module


def model_of(module, kind="attention", **search):
    recipe = {
        "data": {"source_tokens": "words", "target_tokens": "words"},
        "model": {"kind": kind},
        "search": {
            "replace_unknown": True,
            "max_length_ratio": 1.0,
            "max_length_extra": 1,
            "length_bias": 8.0,
            **search,
        },
    }
    return NeuralModel(Recipe.model_validate(recipe), CODEC, module)


def replaced(module, hypothesis, source):
    """The tokens of a hypothesis, each unknown one replaced by the source word with the largest weight."""
    pairs = Batch.of_text(CODEC, [Source(source)])
    pairs = pairs._replace(
        target=torch.tensor([hypothesis.tokens]), target_lengths=torch.tensor([len(hypothesis.tokens)])
    )
    words, weights = source.split(), module.attention(pairs)[0]
    columns = zip(hypothesis.tokens[:-1], weights[: len(words)].T, strict=False)
    return [words[int(row.argmax())] if id_ == UNKNOWN else CODEC.target.vocab.tokens[id_] for id_, row in columns]


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_an_unknown_word_is_the_source_word_with_the_largest_weight(kind):
    module = network(KINDS[kind], seed=2)
    model = model_of(module, kind)
    search, settings = build_search(model.recipe), build_beam(model.recipe.search)
    for source in (SOURCE, "Quendon", "saw Yan Zoe the saw"):
        (found,) = search(module, Batch.of_text(CODEC, [Source(source)]), settings)
        assert UNKNOWN in found[0].tokens
        (prediction,) = model.predict([source])
        assert list(prediction.tokens) == replaced(module, found[0], source)
        assert prediction.log_probability == pytest.approx(found[0].log_prob)
        assert prediction.alignment == []
    assert model.evaluate([(SOURCE, model.predict([SOURCE])[0].text)]).metrics["accuracy"].value == 100
    drawn = model.predict([SOURCE], sample=100)[0].nbest
    assert any("Quendon" in each.tokens or "the" in each.tokens for each in drawn)
    assert not any("<unk>" in each.tokens for each in drawn)


@pytest.mark.parametrize("kind", KINDS)
def test_without_the_setting_no_unknown_word_is_written(kind):
    model = model_of(network(KINDS[kind]), kind, replace_unknown=False)
    listed = [*model.predict([SOURCE], nbest=9)[0].nbest, *model.predict([SOURCE], sample=9)[0].nbest]
    assert {token for each in listed for token in each.tokens} <= {"saw", "Zoe", "long"}


@pytest.mark.parametrize("attends_first", [True, False])
@torch.no_grad()
def test_an_ensemble_takes_the_weights_of_a_member_with_attention_in_its_own_ids(attends_first):
    one, other = network(Attention), network(EncoderDecoder, seed=1)
    swapped = torch.tensor([0, 1, 2, 3, 6, 5, 4])
    ids = [MemberIds(torch.arange(S), table, torch.arange(4)) for table in (swapped, torch.arange(V))]
    members = [(one, ids[0]), (other, ids[1])][:: 1 if attends_first else -1]
    ensemble = Ensemble([member for member, _ in members], [table for _, table in members], "probabilities")
    model = model_of(ensemble, "ensemble")
    batch = Batch.of_text(CODEC, [Source(SOURCE)])
    (found,) = build_search(model.recipe)(ensemble, batch, build_beam(model.recipe.search))
    target = swapped[torch.tensor(found[0].tokens)][None]
    weights = one.attention(batch._replace(target=target, target_lengths=torch.tensor([target.shape[1]])))[0]
    places = [j for j, token in enumerate(found[0].tokens) if token == UNKNOWN]
    assert places
    written = model.predict([SOURCE])[0].tokens
    assert [written[j] for j in places] == [SOURCE.split()[int(weights[:-1, j].argmax())] for j in places]


@torch.no_grad()
def test_what_validation_measures_is_what_predict_writes():
    model = model_of(network(Attention))
    target = model.predict([SOURCE])[0].text
    batch = Batch.of_text(CODEC, [Source(SOURCE)], [target])
    search, beam = build_search(model.recipe), build_beam(model.recipe.search)
    outputs = OutputMetrics(CODEC, search, beam, ["accuracy"], [Pair(SOURCE, target, (), "")])
    validation = GenerationValidation(Corpus, [], outputs)
    (found,) = validation._measure(model.module, batch).outputs
    assert " ".join(validation._decode(0, found)) == target


@pytest.mark.parametrize("kind", ["encoder_decoder", "transducer"])
def test_a_kind_without_attention_weights_is_refused(antiphon, tmp_path, kind):
    settings = ("--set", f"model.kind={kind}", "--set", "search.replace_unknown=true")
    refused = antiphon("train", "toy", *settings, "--out", tmp_path / "run")
    assert refused.status == 2
    assert "search.replace_unknown = true: kind" in refused.err
    assert "has no attention weights, expected false or one of the kinds attention, transformer" in refused.err
    assert not (tmp_path / "run").exists()


def test_the_end_symbol_is_no_word_that_attention_links():
    weights = torch.tensor([[[0.1, 0.3], [0.2, 0.1], [0.7, 0.6]], [[0.4, 0.1], [0.6, 0.9], [0.0, 0.0]]])
    assert attended_positions(weights, torch.tensor([3, 2])).tolist() == [[1, 0], [0, 0]]
    assert attended_positions(weights[:, :1], torch.tensor([1, 1])).tolist() == [[0, 0], [0, 0]]


def test_every_word_has_a_link_where_attention_looks_at_the_end_symbol():
    model = model_of(network(Attention))
    weights = torch.tensor([[0.1, 0.3, 0.0], [0.2, 0.1, 0.0], [0.7, 0.6, 1.0]])
    model.module.attention = lambda batch: weights[None]
    (links,) = model.word_links([("the saw", "saw long")])
    assert links.links == ((0, 1), (1, 0))
    (alignment,) = model.align([("the saw", "saw long")])
    assert alignment.rows == (1, 0, 2)


@torch.no_grad()
def test_a_list_has_each_text_once_with_the_sum_of_its_probabilities():
    model = model_of(network(Attention, scale=1.0), threshold=1e3, beam=40, length_bias=0.0)
    (prediction,) = model.predict(["Zoe"], nbest=30)
    words = ("saw", "Zoe", "long")
    every = {" ".join(tokens) for length in range(3) for tokens in product(words, repeat=length)}
    assert sorted(each.text for each in prediction.nbest) == sorted(every)
    ways = torch.tensor([[UNKNOWN, END], [CODEC.target.vocab.encode(["Zoe"])[0], END]])
    batch = Batch.of_text(CODEC, [Source("Zoe"), Source("Zoe")])._replace(
        target=ways, target_lengths=torch.tensor([2, 2])
    )
    expected = model.module.log_prob(batch).exp().sum().item()
    assert next(each for each in prediction.nbest if each.text == "Zoe").probability == pytest.approx(expected)
    scores = [each.score for each in prediction.nbest]
    assert scores == sorted(scores, reverse=True)
    few = model.predict(["Zoe"], nbest=len(every))[0].nbest
    assert [each.text for each in few] == [each.text for each in prediction.nbest]
    covered = model.predict(["Zoe"], nbest=30, cover=0.02)[0].nbest
    assert sum(each.probability for each in covered) >= 0.02 > sum(each.probability for each in covered[:-1])


def candidate(text, probability, score, **more):
    return Candidate(text, tuple(text.split()), score, math.log(probability), **more)


def test_equal_texts_are_merged_and_the_order_is_that_of_the_new_scores():
    best = candidate("a b", 0.2, math.log(0.2), rows=(0, 1))
    listed = [candidate("c", 0.3, math.log(0.3)), best, candidate("a b", 0.15, math.log(0.15), rows=(1, 1))]
    merged = merge_equal_texts(listed, beam_settings().search_score)
    assert [each.text for each in merged] == ["a b", "c"]
    assert merged[0].probability == pytest.approx(0.35)
    assert merged[0].score == pytest.approx(math.log(0.35))
    assert merged[0].rows == (0, 1)
    per_token = beam_settings(length_normalisation=1.0).search_score
    (normalised,) = merge_equal_texts([candidate("a b", 0.5, math.log(0.5) / 3), listed[1]], per_token)
    assert normalised.score == pytest.approx(math.log(0.7) / 3)


def test_of_equal_texts_of_a_noisy_channel_the_better_one_is_kept():
    listed = [candidate("a", 0.3, 2.0, parts=(1.0,) * 4), candidate("a", 0.4, 1.0, parts=(2.0,) * 4)]
    assert merge_equal_texts(listed, beam_settings().search_score) == listed[:1]


def test_cover_takes_the_most_probable_until_they_have_the_mass():
    listed = [candidate(text, probability, 0.0) for text, probability in (("c", 0.1), ("a", 0.501), ("b", 0.3))]
    for mass, texts in ((0.5, ["a"]), (0.6, ["a", "b"]), (1.0, ["a", "b", "c"])):
        assert [each.text for each in covering(listed, mass)] == texts
