"""Lists of candidates hold each text once, with the probability of all ways to write it."""

import math
from itertools import product

import pytest
import torch

from antiphon.api.model import NeuralModel
from antiphon.data.batch import Batch
from antiphon.models.transducer import Transducer
from antiphon.recipe.schema import Recipe
from antiphon.torch_free.codec import Normalisation, PairCodec, TextCodec, Words
from antiphon.torch_free.readers import Source
from antiphon.torch_free.results import Candidate, covering, merge_equal_texts
from antiphon.torch_free.vocab import END, UNKNOWN, Vocab
from tests.networks import beam_settings, build_network

STEPS = Normalisation()
CODEC = PairCodec(
    TextCodec(STEPS, Words(), Vocab(["the", "saw"])), TextCodec(STEPS, Words(), Vocab(["saw", "Zoe", "long"]))
)


def a_model_that_copies():
    """A transducer that writes an unknown word of its input, such as Zoe, as itself or as a copy."""
    torch.manual_seed(0)
    module = build_network(Transducer, len(CODEC.source.vocab), len(CODEC.target.vocab), copy_unknown=True)
    recipe = {
        "data": {"source_tokens": "words", "target_tokens": "words"},
        "model": {"kind": "transducer", "copy_unknown": True},
        "search": {"max_length_ratio": 1.0, "max_length_extra": 1, "threshold": 1e3, "beam": 40},
    }
    return NeuralModel(Recipe.model_validate(recipe), CODEC, module.double().eval())


@torch.no_grad()
def test_a_list_has_each_text_once_with_the_sum_of_its_probabilities():
    model = a_model_that_copies()
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
