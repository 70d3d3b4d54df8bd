"""Layers of the transformer compute what PyTorch's own layers compute, at once and position by position."""

import math

import pytest
import torch
from torch import nn

from antiphon.nn.transformer_layers import (
    AttentionCache,
    DecoderLayer,
    EncoderLayer,
    KeysValues,
    LayerSizes,
    position_vectors,
)

SIZES = LayerSizes(hidden_size=12, heads=3, feedforward_size=20, dropout=0.4)
LENGTHS = torch.tensor([5, 2, 1])


def layer_of(kind):
    torch.manual_seed(1)
    layer = kind(SIZES).double().eval()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer


def states_of(length):
    return torch.randn(3, length, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(length))


def valid_of(length):
    return torch.arange(length) < LENGTHS[:, None]


def test_an_encoder_layer_is_pytorchs():
    layer, states, valid = layer_of(EncoderLayer), states_of(5), valid_of(5)
    wanted = nn.TransformerEncoderLayer.forward(layer, states, src_key_padding_mask=~valid)
    torch.testing.assert_close(layer(states, valid[:, None, None]), wanted)


def test_a_decoder_layer_is_pytorchs():
    layer, states, memory, valid = layer_of(DecoderLayer), states_of(4), states_of(5), valid_of(5)
    causal = nn.Transformer.generate_square_subsequent_mask(4, dtype=torch.float64)
    wanted = nn.TransformerDecoderLayer.forward(
        layer, states, memory, tgt_mask=causal, memory_key_padding_mask=~valid, tgt_is_causal=True
    )
    source = layer.multihead_attn.keys_values(memory)
    torch.testing.assert_close(layer(states, source, valid[:, None, None])[0], wanted)


@pytest.mark.parametrize("room", [0, 3, 9])
def test_position_by_position_is_all_at_once(room):
    layer, states, valid = layer_of(DecoderLayer), states_of(6), valid_of(5)[:, None, None]
    source = layer.multihead_attn.keys_values(states_of(5))
    wanted, all_kept = layer(states, source, valid)
    cache = AttentionCache.empty(1, (3, 3, room, 4), states)
    for position in range(6):
        cache = cache.with_room(cache.longest + 1)
        before = cache.layers[0], cache.next_position()
        found, kept = layer(states[:, position : position + 1], source, valid, before)
        cache = cache.advanced([kept])
        torch.testing.assert_close(found, wanted[:, position : position + 1])
    torch.testing.assert_close(KeysValues(*(each[:, :, :6] for each in cache.layers[0])), all_kept)


def test_attention_weights_are_pytorchs_mean_over_heads():
    layer, states, memory, valid = layer_of(DecoderLayer), states_of(4), states_of(5), valid_of(5)
    normed, causal = layer.norm1(states), nn.Transformer.generate_square_subsequent_mask(4, dtype=torch.float64)
    after = states + layer.self_attn(normed, normed, normed, attn_mask=causal)[0]
    _, wanted = layer.multihead_attn(layer.norm2(after), memory, memory, key_padding_mask=~valid)
    source = layer.multihead_attn.keys_values(memory)
    torch.testing.assert_close(layer.source_weights(states, source, valid[:, None, None]), wanted)


@pytest.mark.parametrize("kind", [EncoderLayer, DecoderLayer])
def test_dropout_is_drawn_while_training(kind):
    layer, states, valid = layer_of(kind).train(), states_of(5), valid_of(5)[:, None, None]
    given = (states, valid) if kind is EncoderLayer else (states, layer.multihead_attn.keys_values(states), valid)
    one, other = (layer(*given) if kind is EncoderLayer else layer(*given)[0] for _ in range(2))
    assert not torch.allclose(one, other)


@pytest.mark.parametrize("size", [6, 7])
def test_position_vectors_are_sines_and_cosines_of_any_position(size):
    vectors = position_vectors(torch.arange(20_000, 20_003).double(), size)
    for position, vector in enumerate(vectors.tolist(), 20_000):
        for place, value in enumerate(vector):
            angle = position / 10_000 ** (place // 2 * 2 / size)
            assert value == pytest.approx(math.cos(angle) if place % 2 else math.sin(angle), abs=1e-9)
