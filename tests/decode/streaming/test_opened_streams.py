"""Streams that are opened and closed one by one are as if alone; outputs can be made to begin with given tokens."""

import random

import pytest
import torch

from antiphon.decode.streaming.beam_decoder import BeamDecoder
from antiphon.decode.streaming.greedy_decoder import GreedyDecoder
from antiphon.models.transducer import Transducer
from antiphon.torch_free.codec import Chars, Normalisation, PairCodec, TextCodec
from antiphon.torch_free.text_streams import StreamGroup
from antiphon.torch_free.vocab import SPECIALS, Vocab
from tests.networks import beam_settings, build_network

LETTERS = "abcde"
SIDE = TextCodec(Normalisation(False, False, False, False, False), Chars(), Vocab(LETTERS))
CODEC = PairCodec(SIDE, SIDE, Vocab(("X", "Y")))
POLICIES = {"greedy": GreedyDecoder, "beam": BeamDecoder}


def model():
    torch.manual_seed(3)
    size = len(SPECIALS) + len(LETTERS)
    return build_network(Transducer, size, size, len(SPECIALS) + 2, encoder="unidirectional").eval()


def group(policy, network):
    features = torch.zeros(1, 0, dtype=torch.long)
    opened = StreamGroup(POLICIES[policy](network, features, beam_settings(beam=3, commit_margin=2.0)), CODEC, 1)
    opened.close(0)
    return opened


def alone(policy, network, text, **options):
    """What a stream writes that has a group to itself."""
    streams = group(policy, network)
    index = streams.open(**options)
    written = [token for letter in text for token in streams.advance({index: [letter]})[index]]
    return [*written, *streams.finish([index])[0]]


@pytest.mark.parametrize("policy", POLICIES)
def test_streams_that_come_and_go_write_what_each_writes_alone(policy):
    network, draw = model(), random.Random(1)
    streams = group(policy, network)
    open_, done = {}, []
    for _ in range(120):
        if len(open_) < 5 and draw.random() < 0.5:
            options = {"features": draw.choice([(), ("X",), ("Y",)]), "emit_bias": draw.choice([-1.0, 0.0, 1.0])}
            open_[streams.open(**options)] = (options, [], [])
        reading = {index: [draw.choice(LETTERS)] for index in open_ if draw.random() < 0.7}
        for index, written in (streams.advance(reading) if reading else {}).items():
            open_[index][1].extend(reading[index])
            open_[index][2].extend(written)
        if open_ and draw.random() < 0.3:
            index = draw.choice(list(open_))
            options, read, written = open_.pop(index)
            if draw.random() < 0.2:
                streams.close(index)
            elif read:
                done.append((options, read, [*written, *streams.finish([index])[0]]))
            else:
                streams.close(index)
    assert len(streams) <= 6
    assert len(done) > 10
    for options, read, written in done:
        assert written == alone(policy, network, read, **options)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_output_of_a_stream_begins_with_its_prefix(policy):
    network = model()
    prefix = CODEC.target.vocab.encode("ebe").tolist()
    assert alone(policy, network, "abcdeabc", prefix=prefix)[:3] == [*"ebe"]
    assert alone(policy, network, "abcdeabc")[:3] != [*"ebe"]


def test_the_active_outputs_of_a_stream_are_sorted_and_probabilities():
    network = model()
    streams = group("beam", network)
    index = streams.open()
    for letter in "abc":
        streams.advance({index: [letter]})
        scores = [score for _, score in streams.outputs(index)]
        assert scores == sorted(scores, reverse=True)
        assert 0 < sum(torch.tensor(scores).exp()) <= 1 + 1e-6
