"""Layers of a transformer: PyTorch's own, with layer normalisation before each sub-layer, and keys and values to keep.

    attention    softmax(Q K^T / sqrt(D)) V  in each of A heads of size D, concatenated and projected
    sub-layer    x + dropout(f(norm(x)))  with f attention to x, attention to the source, or the feed-forward network

A layer computes all positions at once, or one position after the keys and values of all earlier ones, which are kept.
Nothing needs a device sync. Attention weights have no dropout. Not in the thesis.
"""

from dataclasses import dataclass
from math import log, sqrt
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import linear, pad, scaled_dot_product_attention

from antiphon.nn.recurrent import Dropout, with_features


class KeysValues(NamedTuple):
    """Keys and values of positions that are attended to, by head."""

    keys: Float[Tensor, "N A T D"]
    values: Float[Tensor, "N A T D"]

    def write(self, slot: Int[Tensor, "N 1 1 1"], new: "KeysValues") -> "KeysValues":
        """The same with the keys and values of one more position of each sequence, written into its slot."""
        keys, values = (buffer.scatter(2, slot.expand_as(each), each) for buffer, each in zip(self, new, strict=True))
        return KeysValues(keys, values)

    def with_room(self, size: int) -> "KeysValues":
        """The same in buffers for at least ``size`` positions."""
        missing = size - self.keys.shape[2]
        return self if missing <= 0 else KeysValues(*(pad(each, (0, 0, 0, missing)) for each in self))


class NextPosition(NamedTuple):
    """Where the next position of each sequence goes in buffers, and what it attends to: itself and all before it."""

    slot: Int[Tensor, "N 1 1 1"]
    seen: Bool[Tensor, "N 1 1 T"]


class AttentionCache(NamedTuple):
    """Keys and values of ``N`` sequences, which grow by one position at a time, in every layer.

    Buffers have room for ``T`` positions, of which sequence ``n`` has filled the first ``lengths[n]``: sequences of
    different lengths are in one batch, and with enough room from the start no shape depends on the data. So a step can
    be captured as a CUDA graph. No sequence is longer than ``longest``, which is known without a device sync.
    """

    layers: tuple[KeysValues, ...]
    lengths: Int[Tensor, " N"]
    longest: int

    @classmethod
    def empty(cls, layers: int, shape: tuple[int, int, int, int], like: Tensor) -> "AttentionCache":
        """Sequences without positions in buffers of shape ``(N, A, T, D)``, with the device and type of a tensor."""
        buffers = tuple(KeysValues(like.new_zeros(shape), like.new_zeros(shape)) for _ in range(layers))
        return cls(buffers, torch.zeros(shape[0], dtype=torch.long, device=like.device), 0)

    def with_room(self, size: int) -> "AttentionCache":
        """The same in buffers for at least ``size`` positions."""
        return self._replace(layers=tuple(layer.with_room(size) for layer in self.layers))

    def next_position(self) -> NextPosition:
        """The next position of every sequence."""
        positions = torch.arange(self.layers[0].keys.shape[2], device=self.lengths.device)
        slot = self.lengths[:, None, None, None]
        return NextPosition(slot, positions <= slot)

    def advanced(self, layers: list[KeysValues]) -> "AttentionCache":
        """All sequences with one more position, which these layers hold."""
        return AttentionCache(tuple(layers), self.lengths + 1, self.longest + 1)


_LONGEST_WAVE = 10_000
"""The wavelengths of position vectors go from 1 to this, in units of 2 pi positions."""


@dataclass(frozen=True)
class LayerSizes:
    """What all layers of a transformer share; ``dropout`` is on the output of sub-layers and inside feed-forward."""

    hidden_size: int
    heads: int
    feedforward_size: int
    dropout: float


class MultiheadAttention(nn.MultiheadAttention):
    """PyTorch's attention in steps, so that keys and values can be kept between calls."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__(sizes.hidden_size, sizes.heads, batch_first=True)

    def keys_values(self, states: Float[Tensor, "N T H"]) -> KeysValues:
        """Keys and values of states that can be attended to."""
        keys, values = self._project(states, slice(self.embed_dim, None)).chunk(2, 2)
        return KeysValues(self._split_heads(keys), self._split_heads(values))

    def attend(
        self,
        states: Float[Tensor, "N T H"],
        others: KeysValues,
        *,
        valid: Bool[Tensor, "N 1 1 S"] | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "N T H"]:
        """What each state attends to: everything ``valid``, or itself and what is before it."""
        attended = scaled_dot_product_attention(self._queries(states), *others, attn_mask=valid, is_causal=causal)
        projected: Tensor = self.out_proj(attended.transpose(1, 2).flatten(2))
        return projected

    def weights(
        self, states: Float[Tensor, "N T H"], others: KeysValues, valid: Bool[Tensor, "N 1 1 S"]
    ) -> Float[Tensor, "N T S"]:
        """How much each state attends to each other one, averaged over heads."""
        scores = self._queries(states) @ others.keys.mT * self.head_dim**-0.5
        averaged: Tensor = scores.masked_fill(~valid, float("-inf")).softmax(3).mean(1)
        return averaged

    def _queries(self, states: Float[Tensor, "N T H"]) -> Float[Tensor, "N A T D"]:
        return self._split_heads(self._project(states, slice(self.embed_dim)))

    def _project(self, states: Float[Tensor, "N T H"], rows: slice) -> Float[Tensor, "N T R"]:
        """The product with some rows of the weights, in which queries, keys and values are stacked."""
        return linear(states, self.in_proj_weight[rows], self.in_proj_bias[rows])

    def _split_heads(self, states: Float[Tensor, "N T H"]) -> Float[Tensor, "N A T D"]:
        return states.view(*states.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)


class EncoderLayer(nn.TransformerEncoderLayer):
    """Every position of the source attends to all of them."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__(sizes.hidden_size, sizes.heads, sizes.feedforward_size, norm_first=True, batch_first=True)
        self.self_attn: MultiheadAttention = MultiheadAttention(sizes)
        self.activation = nn.GELU()
        self.dropout, self.dropout1, self.dropout2 = (Dropout(sizes.dropout) for _ in range(3))

    def forward(  # type: ignore[override]
        self, states: Float[Tensor, "N I H"], valid: Bool[Tensor, "N 1 1 I"]
    ) -> Float[Tensor, "N I H"]:
        """The states after this layer, with attention to all ``valid`` positions."""
        normed = self.norm1(states)
        others = self.self_attn.keys_values(normed)
        states = states + self.dropout1(self.self_attn.attend(normed, others, valid=valid))
        return states + self._ff_block(self.norm2(states))


class DecoderLayer(nn.TransformerDecoderLayer):
    """Every position of the target attends to itself, to those before it, and to the source."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__(sizes.hidden_size, sizes.heads, sizes.feedforward_size, norm_first=True, batch_first=True)
        self.self_attn: MultiheadAttention = MultiheadAttention(sizes)
        self.multihead_attn: MultiheadAttention = MultiheadAttention(sizes)
        self.activation = nn.GELU()
        self.dropout, self.dropout1, self.dropout2, self.dropout3 = (Dropout(sizes.dropout) for _ in range(4))

    def forward(  # type: ignore[override]
        self,
        states: Float[Tensor, "N J H"],
        source: KeysValues,
        valid: Bool[Tensor, "N 1 1 I"],
        before: tuple[KeysValues, NextPosition] | None = None,
    ) -> tuple[Float[Tensor, "N J H"], KeysValues]:
        """The states after this layer, and the keys and values that later positions attend to.

        ``states`` are all positions of a target, or with ``before`` the one that follows the positions cached there.
        """
        states, kept = self._attend_to_target(states, before)
        states = states + self.dropout2(self.multihead_attn.attend(self.norm2(states), source, valid=valid))
        return states + self._ff_block(self.norm3(states)), kept

    def source_weights(
        self, states: Float[Tensor, "N J H"], source: KeysValues, valid: Bool[Tensor, "N 1 1 I"]
    ) -> Float[Tensor, "N J I"]:
        """How much each target position attends to each source position, averaged over heads."""
        states, _ = self._attend_to_target(states, None)
        return self.multihead_attn.weights(self.norm2(states), source, valid)

    def _attend_to_target(
        self, states: Float[Tensor, "N J H"], before: tuple[KeysValues, NextPosition] | None
    ) -> tuple[Float[Tensor, "N J H"], KeysValues]:
        normed = self.norm1(states)
        kept, seen = self.self_attn.keys_values(normed), None
        if before is not None:
            cached, (slot, seen) = before
            kept = cached.write(slot, kept)
        return states + self.dropout1(self.self_attn.attend(normed, kept, valid=seen, causal=seen is None)), kept


def token_vectors(vocabulary_size: int, size: int) -> nn.Embedding:
    """Vectors of about unit length, which are scaled up where they are added to position vectors."""
    table = nn.Embedding(vocabulary_size, size)
    nn.init.normal_(table.weight, std=size**-0.5)
    return table


def at_positions(
    vectors: Float[Tensor, "N T H"], features: Float[Tensor, "N H"] | None, positions: Int[Tensor, "*N T"]
) -> Float[Tensor, "N T H"]:
    """Token vectors plus the vector of the features, scaled up, plus the vectors of the positions."""
    embedded, H = with_features(vectors, features), vectors.shape[2]
    return embedded * sqrt(H) + position_vectors(positions.to(embedded.dtype), H)


def position_vectors(positions: Float[Tensor, "*N T"], size: int) -> Float[Tensor, "*N T H"]:
    """Sines and cosines of positions; there is no longest length.

    ``vector[2 k] = sin(position * w_k)``, ``vector[2 k + 1] = cos(position * w_k)``, ``w_k = 10000 ** (-2 k / H)``.
    """
    dimensions = torch.arange(0, size, 2, device=positions.device, dtype=positions.dtype)
    angles = positions[..., None] * torch.exp(dimensions * (-log(_LONGEST_WAVE) / size))
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)[..., :size]
