"""A transformer over the source of a transducer: bidirectional, or causal so that it can stream.

    x_i        sqrt(H) (vector of the token + vector of the features) + position vector of i
    h          layers of attention to all of x, or for h_i to x_1..x_i, normalised

A causal encoder reads one more token at the cost of attention to those before it, whose keys and values are kept; the
states are those of the whole source. Not in the thesis. Cost: O(I H^2 + I^2 H) for each layer and source.
"""

from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from antiphon.nn.attention_cache import AttentionCache
from antiphon.nn.dropout import Dropout
from antiphon.nn.recurrent import valid_positions
from antiphon.nn.transformer_layers import EncoderLayer, LayerSizes, at_positions, encode_positions, token_vectors


class TransformerEncoder(nn.Module):
    """The state of each input position; padding does not change the states of real positions."""

    def __init__(self, vocabulary_size: int, sizes: LayerSizes, layers: int, *, bidirectional: bool) -> None:
        super().__init__()
        self.bidirectional = bidirectional
        self.embedding_size = self.output_size = sizes.hidden_size
        self.embedding = token_vectors(vocabulary_size, sizes.hidden_size)
        self.layers = nn.ModuleList(EncoderLayer(sizes) for _ in range(layers))
        self.norm = nn.LayerNorm(sizes.hidden_size)
        self.dropout = Dropout(sizes.dropout)

    def forward(
        self, tokens: Int[Tensor, "B I"], lengths: Int[Tensor, " B"], features: Float[Tensor, "B H"] | None = None
    ) -> Float[Tensor, "B I H"]:
        """The state at each input position; the vector of features is added to that of every token."""
        I = tokens.shape[1]
        valid = valid_positions(lengths, I)[:, None, None] if self.bidirectional else None
        states = self._embed(tokens, torch.arange(I, device=tokens.device), features)
        return encode_positions(states, valid, self.layers, self.norm)

    def initial_cache(self, N: int, room: int = 0) -> AttentionCache:
        """The keys and values of sources without tokens, in buffers for ``room`` tokens; for causal encoders."""
        attention = cast(EncoderLayer, self.layers[0]).self_attn
        shape = N, attention.num_heads, room, attention.head_dim
        return AttentionCache.empty(len(self.layers), shape, self.embedding.weight)

    def step(
        self, tokens: Int[Tensor, " N"], cache: AttentionCache, features: Float[Tensor, "N H"] | None = None
    ) -> tuple[Float[Tensor, "N H"], AttentionCache]:
        """The state after one more token, and what to continue from; only for causal encoders."""
        states = self._embed(tokens[:, None], cache.lengths[:, None], features)
        cache, kept = cache.with_room(cache.longest + 1), []
        position = cache.next_position()
        for layer, before in zip(self.layers, cache.layers, strict=True):
            states, keys_values = cast(EncoderLayer, layer).step(states, before, position)
            kept.append(keys_values)
        return self.norm(states)[:, 0], cache.advanced(kept)

    def _embed(
        self, tokens: Int[Tensor, "N T"], positions: Int[Tensor, "*N T"], features: Float[Tensor, "N H"] | None
    ) -> Float[Tensor, "N T H"]:
        embedded: Tensor = self.dropout(at_positions(self.embedding(tokens), features, positions))
        return embedded
