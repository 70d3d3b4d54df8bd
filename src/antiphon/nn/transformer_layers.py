"""Layers of a transformer: PyTorch's own, with layer normalisation before each sub-layer, and keys and values to keep.

    attention    softmax(Q K^T / sqrt(D)) V  in each of A heads of size D, concatenated and projected
    sub-layer    x + dropout(f(norm(x)))  with f attention to x, attention to the source, or the feed-forward network

A layer of the decoder computes all positions of a target at once, or one position after the keys and values of all
earlier ones. Attention weights have no dropout. Not in the thesis.
"""

from dataclasses import dataclass
from math import log
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention

from antiphon.nn.dropout import Dropout

_LONGEST_WAVE = 10_000
"""The wavelengths of position vectors go from 1 to this, in units of 2 pi positions."""


@dataclass(frozen=True)
class LayerSizes:
    """What all layers of a transformer share; ``dropout`` is on the output of sub-layers and inside feed-forward."""

    hidden_size: int
    heads: int
    feedforward_size: int
    dropout: float


class KeysValues(NamedTuple):
    """Keys and values of positions that are attended to, by head."""

    keys: Float[Tensor, "N A T D"]
    values: Float[Tensor, "N A T D"]

    def append(self, later: "KeysValues") -> "KeysValues":
        """Those of these positions and of later ones."""
        return KeysValues(torch.cat([self.keys, later.keys], 2), torch.cat([self.values, later.values], 2))

    def select(self, index: Int[Tensor, " M"]) -> "KeysValues":
        """Those of some sequences."""
        return KeysValues(self.keys.index_select(0, index), self.values.index_select(0, index))


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
        """The product with some rows of the weights, which are those of queries, keys and values."""
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
        """The states after this layer."""
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
        before: KeysValues | None = None,
    ) -> tuple[Float[Tensor, "N J H"], KeysValues]:
        """The states after this layer, and keys and values for those that follow.

        Without ``before`` these are all positions of a target, otherwise one after those of ``before``.
        """
        states, kept = self._attend_to_target(states, before)
        states = states + self.dropout2(self.multihead_attn.attend(self.norm2(states), source, valid=valid))
        return states + self._ff_block(self.norm3(states)), kept

    def source_weights(
        self, states: Float[Tensor, "N J H"], source: KeysValues, valid: Bool[Tensor, "N 1 1 I"]
    ) -> Float[Tensor, "N J I"]:
        """How much each position of a target attends to each of the source, averaged over heads."""
        states, _ = self._attend_to_target(states, None)
        return self.multihead_attn.weights(self.norm2(states), source, valid)

    def _attend_to_target(
        self, states: Float[Tensor, "N J H"], before: KeysValues | None
    ) -> tuple[Float[Tensor, "N J H"], KeysValues]:
        normed = self.norm1(states)
        own = self.self_attn.keys_values(normed)
        seen = own if before is None else before.append(own)
        return states + self.dropout1(self.self_attn.attend(normed, seen, causal=before is None)), seen


def position_vectors(first: int, embedded: Float[Tensor, "N T H"]) -> Float[Tensor, "T H"]:
    """Sines and cosines of the positions from ``first`` on, as many as there are vectors of tokens; no longest length.

    ``vector[2 k] = sin(position * w_k)``, ``vector[2 k + 1] = cos(position * w_k)``, ``w_k = 10000 ** (-2 k / H)``.
    """
    T, H = embedded.shape[1:]
    positions = torch.arange(first, first + T, device=embedded.device, dtype=embedded.dtype)
    dimensions = torch.arange(0, H, 2, device=embedded.device, dtype=embedded.dtype)
    angles = positions[:, None] * torch.exp(dimensions * (-log(_LONGEST_WAVE) / H))
    return torch.stack([angles.sin(), angles.cos()], 2).flatten(1)[:, :H]
