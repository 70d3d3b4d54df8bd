"""A transformer over the source: padding changes nothing, a causal one never looks ahead and can read step by step."""

import pytest
import torch
from torch import nn

from antiphon.models.transducer_network import CausalState
from antiphon.nn.transformer_layers import AttentionCache, LayerSizes, TransformerEncoder

LENGTHS = torch.tensor([7, 2, 4])


def encoder_of(*, bidirectional):
    torch.manual_seed(0)
    encoder = TransformerEncoder(9, LayerSizes(8, 2, 12, 0.3), layers=2, bidirectional=bidirectional)
    for parameter in encoder.layers.parameters():
        nn.init.normal_(parameter, std=0.5)
    return encoder.double().eval()


def tokens_of():
    return torch.randint(9, (3, 7), generator=torch.Generator().manual_seed(1))


def features_of():
    return torch.randn(3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("bidirectional", [False, True])
def test_padding_changes_no_state(bidirectional):
    encoder, tokens, features = encoder_of(bidirectional=bidirectional), tokens_of(), features_of()
    together = encoder(tokens, LENGTHS, features)
    for b, length in enumerate(LENGTHS.tolist()):
        alone = encoder(tokens[b : b + 1, :length], LENGTHS[b : b + 1], features[b : b + 1])
        torch.testing.assert_close(together[b, :length], alone[0])
    other_padding = torch.where(torch.arange(7) < LENGTHS[:, None], tokens, 8 - tokens)
    changed = encoder(other_padding, LENGTHS, features)
    for b, length in enumerate(LENGTHS.tolist()):
        assert torch.equal(changed[b, :length], together[b, :length])


@pytest.mark.parametrize("bidirectional", [False, True])
def test_only_a_bidirectional_source_looks_ahead(bidirectional):
    encoder, tokens = encoder_of(bidirectional=bidirectional), tokens_of()[:1]
    changed = tokens.clone()
    changed[0, 4:] = (changed[0, 4:] + 1) % 9
    one, other = (encoder(each, LENGTHS[:1])[0] for each in (tokens, changed))
    assert torch.allclose(one[:4], other[:4]) is not bidirectional
    assert not torch.allclose(one[4], other[4])


@torch.no_grad()
@pytest.mark.parametrize("room", [0, 20])
def test_states_of_a_stream_are_those_of_the_whole_source_however_streams_are_mixed(room):
    encoder, tokens, features = encoder_of(bidirectional=False), tokens_of(), features_of()
    wanted = encoder(tokens, LENGTHS, features)
    cache, read = encoder.initial_cache(3, room), [0, 0, 0]
    for streams in ([0], [0, 2], [2], [1, 0], [0, 1, 2], [2, 0], [0], [0]):
        index = torch.tensor(streams)
        given = torch.tensor([tokens[n, read[n]] for n in streams])
        states, part = encoder.step(given, cache.select(index), features[index])
        cache = cache.put(index, part)
        for n, state in zip(streams, states, strict=True):
            torch.testing.assert_close(state, wanted[n, read[n]])
            read[n] += 1
    assert read == LENGTHS.tolist() == cache.lengths.tolist()


@torch.no_grad()
def test_a_step_changes_nothing_that_it_is_given():
    encoder = encoder_of(bidirectional=False)
    _, cache = encoder.step(torch.tensor([4, 5]), encoder.initial_cache(2, room=3))
    before = [tensor.clone() for layer in cache.layers for tensor in layer]
    once, _ = encoder.step(torch.tensor([6, 6]), cache)
    again, _ = encoder.step(torch.tensor([6, 6]), cache)
    assert torch.equal(once, again)
    assert all(map(torch.equal, before, [tensor for layer in cache.layers for tensor in layer]))


@pytest.mark.parametrize("features", [None, torch.randn(3, 8)])
def test_sequences_of_different_lengths_are_selected_joined_and_put_together(features):
    short, long = (AttentionCache.empty(2, (3, 2, size, 4), torch.zeros(0)) for size in (1, 3))
    for number, cache in enumerate((short, long)):
        for layer in cache.layers:
            layer.keys.fill_(number + 1)
    long = long._replace(lengths=torch.tensor([3, 2, 1]), longest=3)
    one, other = (CausalState(cache, features) for cache in (short, long))
    joined = one.select(torch.tensor([0, 1])).join(other.select(torch.tensor([2])))
    assert joined.cache.lengths.tolist() == [0, 0, 1]
    assert joined.cache.longest == 3
    assert joined.cache.layers[1].keys[:, 0, :, 0].tolist() == [[1, 0, 0], [1, 0, 0], [2, 2, 2]]
    assert joined.features is features is None or torch.equal(joined.features, features)
    put = one.put(torch.tensor([1]), other.select(torch.tensor([0])))
    assert put.cache.lengths.tolist() == [0, 3, 0]
    assert put.cache.layers[0].keys[:, 1, :, 3].tolist() == [[1, 0, 0], [2, 2, 2], [1, 0, 0]]
