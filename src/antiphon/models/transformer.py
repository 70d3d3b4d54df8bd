"""A transformer: encoder and decoder of attention layers, the baseline that is common today.

    x_i        sqrt(H) (vector of the source token + vector of the features) + position vector of i
    h          layers of attention to all of x, normalised
    s_j        the same of y_1..y_{j-1} with attention to h and to the prefix
    p(y_j)     softmax(W s_j + b)

All positions of a target are computed at once, or step by step with the keys and values of the prefix kept: O(j + I)
for step j. Not in the thesis. Cost: O((I + J) H^2 + (I^2 + I J + J^2) H) for each layer and pair.
"""

from typing import NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding

from antiphon.data.batch import Batch
from antiphon.models.left_to_right import TokenModel, select
from antiphon.nn.recurrent import Dropout, FeatureEmbedding, valid_positions
from antiphon.nn.transformer_layers import (
    AttentionCache,
    DecoderLayer,
    EncoderLayer,
    KeysValues,
    LayerSizes,
    at_positions,
    token_vectors,
)


class TransformerMemory(NamedTuple):
    """What the decoder needs of the source: keys and values for each of its layers, and the features."""

    layers: tuple[KeysValues, ...]
    valid: Bool[Tensor, "N 1 1 I"]
    features: Float[Tensor, "N H"] | None


class Transformer(TokenModel):
    """p(y | x) token by token, with attention in every layer."""

    state_grows = True

    def __init__(
        self,
        source_size: int,
        target_size: int,
        feature_size: int = 0,
        *,
        hidden_size: int,
        layers: int,
        heads: int,
        feedforward_size: int,
        dropout: float,
        tie_output: bool,
    ) -> None:
        super().__init__()
        sizes = LayerSizes(hidden_size, heads, feedforward_size, dropout)
        self.source_embedding = token_vectors(source_size, hidden_size)
        self.target_embedding = None if tie_output else token_vectors(target_size, hidden_size)
        self.features = FeatureEmbedding(feature_size, hidden_size) if feature_size else None
        self.encoder = nn.ModuleList(EncoderLayer(sizes) for _ in range(layers))
        self.encoder_norm = nn.LayerNorm(hidden_size)
        self.decoder = nn.ModuleList(DecoderLayer(sizes) for _ in range(layers))
        self.decoder_norm = nn.LayerNorm(hidden_size)
        self.output = nn.Linear(hidden_size, target_size)
        self.dropout = Dropout(dropout)

    def logits(self, batch: Batch) -> Float[Tensor, "B J V"]:
        """The logits of every token at each position of the targets, all at once."""
        memory = self._encode(batch)
        states = self._embed_prefix(batch, memory.features)
        for layer, source in zip(self.decoder, memory.layers, strict=True):
            states, _ = layer(states, source, memory.valid)
        logits: Tensor = self.output(self.decoder_norm(states))
        return logits

    def attention(self, batch: Batch) -> Float[Tensor, "B I J"]:
        """The attention of each target token to each source position in the last layer, averaged over heads."""
        memory = self._encode(batch)
        states = self._embed_prefix(batch, memory.features)
        for layer, source in zip(self.decoder[:-1], memory.layers, strict=False):
            states, _ = layer(states, source, memory.valid)
        last = cast(DecoderLayer, self.decoder[-1])
        return last.source_weights(states, memory.layers[-1], memory.valid).mT

    def start(self, batch: Batch) -> tuple[TransformerMemory, AttentionCache]:
        """The sources, encoded, and prefixes without tokens."""
        memory = self._encode(batch)
        N, A, _, D = memory.layers[0].keys.shape
        return memory, AttentionCache.empty(len(self.decoder), (N, A, 0, D), memory.layers[0].keys)

    def step(
        self,
        memory: TransformerMemory,
        state: AttentionCache,
        tokens: Int[Tensor, " N"],
        sentence: Int[Tensor, " N"],
    ) -> tuple[Float[Tensor, "N V"], AttentionCache]:
        """Log probabilities of the token after these, and the state to continue from."""
        sources, state, kept = select(memory, sentence), state.with_room(state.longest + 1), []
        states = self._embed_target(tokens[:, None], state.lengths[:, None], sources.features)
        position = state.next_position()
        for layer, source, before in zip(self.decoder, sources.layers, state.layers, strict=True):
            states, keys_values = layer(states, source, sources.valid, (before, position))
            kept.append(keys_values)
        return self.output(self.decoder_norm(states[:, 0])).log_softmax(1), state.advanced(kept)

    def reserve(self, state: AttentionCache, length: int) -> AttentionCache:
        """The state with room for prefixes of a length, so that it does not grow."""
        return state.with_room(length)

    def _encode(self, batch: Batch) -> TransformerMemory:
        features = self.feature_vectors(batch)
        valid = valid_positions(batch.source_lengths, batch.source.shape[1])[:, None, None]
        positions = torch.arange(batch.source.shape[1], device=batch.source.device)
        states = self.dropout(at_positions(self.source_embedding(batch.source), features, positions))
        for encoder in self.encoder:
            states = encoder(states, valid)
        states = self.encoder_norm(states)
        layers = (cast(DecoderLayer, layer).multihead_attn.keys_values(states) for layer in self.decoder)
        return TransformerMemory(tuple(layers), valid, features)

    def _embed_prefix(self, batch: Batch, features: Float[Tensor, "B H"] | None) -> Float[Tensor, "B J H"]:
        """Vectors of the decoder's input: the start symbol, then every target token but the last."""
        prefix = batch.shifted_target
        return self._embed_target(prefix, torch.arange(prefix.shape[1], device=prefix.device), features)

    def _embed_target(
        self, tokens: Int[Tensor, "N J"], positions: Int[Tensor, "*N J"], features: Float[Tensor, "N H"] | None
    ) -> Float[Tensor, "N J H"]:
        """Vectors of target tokens at some positions."""
        table = self.output if self.target_embedding is None else self.target_embedding
        embedded: Tensor = self.dropout(at_positions(embedding(tokens, table.weight), features, positions))
        return embedded
