"""Dev metrics of generated outputs."""

import numpy as np
import pytest
import torch

from antiphon.data.corpus import Corpus, LengthLimits
from antiphon.models.transducer import Transducer
from antiphon.recipe.schema import Recipe
from antiphon.runs.build import build_beam
from antiphon.torch_free.codec import Chars, Normalisation, PairCodec, TextCodec, Words
from antiphon.torch_free.hypothesis import Hypothesis
from antiphon.torch_free.readers import Pair
from antiphon.torch_free.vocab import END, Vocab
from antiphon.training.task import GenerationValidation, OutputMetrics
from tests.networks import build_network

STEPS = Normalisation()
CODEC = PairCodec(TextCodec(STEPS, Chars(), Vocab("ab")), TextCodec(STEPS, Words(), Vocab(["A", "B"])))
PAIRS = [Pair("ab", "A B", (), ""), Pair("ba", "B A", (), "")]


def dev_metrics(outputs):
    """The metrics of outputs, given as text, whatever the network."""
    ids = [(*CODEC.target.known_ids(text.split(), "here"), END) for text in outputs]
    found = [[Hypothesis(tokens, -1.0, -1.0)] for tokens in ids]
    metrics = OutputMetrics(
        CODEC, lambda *_: found, build_beam(Recipe().search), ["accuracy", "symbol_error_rate"], PAIRS
    )
    validation = GenerationValidation(Corpus.encode(PAIRS, CODEC, LengthLimits()), [np.arange(2)], metrics)
    network = build_network(Transducer, len(CODEC.source.vocab), len(CODEC.target.vocab))
    with torch.inference_mode():
        return validation(network.eval(), lambda batch, compute: [compute(batch)]).metrics


@pytest.mark.parametrize(
    ("outputs", "error_rate"),
    [(["A B", "B A"], 0.0), (["A B", "A B"], 50.0), (["A B", "B A B A"], 50.0), (["A B", "B A " * 30], 50.0)],
)
def test_an_endless_output_counts_no_more_than_a_missing_one(outputs, error_rate):
    metrics = dev_metrics(outputs)
    assert metrics["symbol_error_rate"] == error_rate
    assert metrics["accuracy"] == (100.0 if not error_rate else 50.0)
