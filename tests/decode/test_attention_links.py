"""Links by attention are to words, never to the end symbol."""

import torch

from antiphon.api.model import NeuralModel
from antiphon.decode.alignments import attended_positions
from antiphon.models.recurrent import Attention
from antiphon.recipe.schema import Recipe
from antiphon.torch_free.codec import Normalisation, PairCodec, TextCodec, Words
from antiphon.torch_free.vocab import Vocab
from tests.networks import build_network


def test_the_end_symbol_is_no_word_that_attention_links():
    weights = torch.tensor([[[0.1, 0.3], [0.2, 0.1], [0.7, 0.6]], [[0.4, 0.1], [0.6, 0.9], [0.0, 0.0]]])
    assert attended_positions(weights, torch.tensor([3, 2])).tolist() == [[1, 0], [0, 0]]
    assert attended_positions(weights[:, :1], torch.tensor([1, 1])).tolist() == [[0, 0], [0, 0]]


def test_every_word_has_a_link_where_attention_looks_at_the_end_symbol():
    codec = TextCodec(Normalisation(), Words(), Vocab(["the", "saw", "long"]))
    module = build_network(Attention, len(codec.vocab), len(codec.vocab)).eval()
    between_words = {"source_tokens": "words", "target_tokens": "words"}
    recipe = Recipe.model_validate({"data": between_words, "model": {"kind": "attention"}})
    model = NeuralModel(recipe, PairCodec(codec, codec), module)
    weights = torch.tensor([[0.1, 0.3, 0.0], [0.2, 0.1, 0.0], [0.7, 0.6, 1.0]])
    module.attention = lambda batch: weights[None]
    (links,) = model.word_links([("the saw", "saw long")])
    assert links.links == ((0, 1), (1, 0))
    (alignment,) = model.align([("the saw", "saw long")])
    assert alignment.rows == (1, 0, 2)
