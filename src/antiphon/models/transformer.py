"""A transformer: encoder and decoder of attention layers, the baseline that is common today.

    x_i        sqrt(H) (vector of the source token + vector of the features) + position vector of i
    h          layers of attention to all of x, normalised
    s_j        the same of y_1..y_{j-1} with attention to h and to the prefix
    p(y_j)     softmax(W s_j + b)

All positions of a target are computed at once, or step by step with the keys and values of the prefix kept: O(j + I)
for step j. Not in the thesis. Cost: O((I + J) H^2 + (I^2 + I J + J^2) H) for each layer and pair.
"""

from math import sqrt
from typing import NamedTuple, cast

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding

from antiphon.data.batch import Batch
from antiphon.models.token_likelihood import log_likelihood
from antiphon.nn.dropout import Dropout
from antiphon.nn.recurrent import FeatureEmbedding, valid_positions, with_features
from antiphon.nn.token_logits import Projection
from antiphon.nn.transformer_layers import DecoderLayer, EncoderLayer, KeysValues, LayerSizes, position_vectors

TransformerState = tuple[KeysValues, ...]
"""Keys and values of each prefix in every layer of the decoder; they grow by one position with every step."""


class TransformerMemory(NamedTuple):
    """What the decoder needs of the source: keys and values for each of its layers, and the features."""

    layers: tuple[KeysValues, ...]
    valid: Bool[Tensor, "N 1 1 I"]
    features: Float[Tensor, "N H"] | None

    def select(self, index: Int[Tensor, " M"]) -> "TransformerMemory":
        """The memory of some sources."""
        features = None if self.features is None else self.features.index_select(0, index)
        layers = tuple(layer.select(index) for layer in self.layers)
        return TransformerMemory(layers, self.valid.index_select(0, index), features)


class Transformer(nn.Module):
    """p(y | x) token by token, with attention in every layer."""

    state_grows = True
    """The state of a prefix gets larger with every token, so no decoding step is captured as a CUDA graph."""

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
        self.source_embedding = _embedding(source_size, hidden_size)
        self.target_embedding = None if tie_output else _embedding(target_size, hidden_size)
        self.features = FeatureEmbedding(feature_size, hidden_size) if feature_size else None
        self.encoder = nn.ModuleList(EncoderLayer(sizes) for _ in range(layers))
        self.encoder_norm = nn.LayerNorm(hidden_size)
        self.decoder = nn.ModuleList(DecoderLayer(sizes) for _ in range(layers))
        self.decoder_norm = nn.LayerNorm(hidden_size)
        self.output = Projection(hidden_size, target_size)
        self.dropout = Dropout(dropout)

    def forward(self, batch: Batch) -> Float[Tensor, " B"]:
        """``log p(y | x)`` of each pair: the same as ``log_prob``."""
        return self.log_prob(batch)

    def log_prob(self, batch: Batch) -> Float[Tensor, " B"]:
        """``log p(y | x)`` of each pair."""
        return log_likelihood(self.logits(batch), batch)

    def logits(self, batch: Batch) -> Float[Tensor, "B J V"]:
        """The logits of every token at each position of the targets, all at once."""
        memory = self._encode(batch)
        states = self._embed_target(batch.shifted_target, memory)
        for layer, source in zip(self.decoder, memory.layers, strict=True):
            states, _ = layer(states, source, memory.valid)
        logits: Tensor = self.output(self.decoder_norm(states))
        return logits

    def attention(self, batch: Batch) -> Float[Tensor, "B I J"]:
        """The attention of each target token to each source position in the last layer, averaged over heads."""
        memory = self._encode(batch)
        states = self._embed_target(batch.shifted_target, memory)
        for layer, source in zip(self.decoder[:-1], memory.layers, strict=False):
            states, _ = layer(states, source, memory.valid)
        last = cast(DecoderLayer, self.decoder[-1])
        return last.source_weights(states, memory.layers[-1], memory.valid).mT

    def start(self, batch: Batch) -> tuple[TransformerMemory, TransformerState]:
        """The sources, encoded, and prefixes without tokens."""
        memory = self._encode(batch)
        return memory, tuple(KeysValues(*(each[:, :, :0] for each in layer)) for layer in memory.layers)

    def step(
        self,
        memory: TransformerMemory,
        state: TransformerState,
        tokens: Int[Tensor, " N"],
        sentence: Int[Tensor, " N"],
    ) -> tuple[Float[Tensor, "N V"], TransformerState]:
        """Log probabilities of the token after these, and the state to continue from."""
        theirs = memory.select(sentence)
        states, after = self._embed_target(tokens[:, None], theirs, first=state[0].keys.shape[2]), []
        for layer, source, before in zip(self.decoder, theirs.layers, state, strict=True):
            states, seen = layer(states, source, theirs.valid, before)
            after.append(seen)
        return self.output(self.decoder_norm(states[:, 0])).log_softmax(1), tuple(after)

    def select(self, state: TransformerState, index: Int[Tensor, " N"]) -> TransformerState:
        """The states of some hypotheses."""
        return tuple(layer.select(index) for layer in state)

    def _encode(self, batch: Batch) -> TransformerMemory:
        features = None if self.features is None else self.features(batch.features)
        valid = valid_positions(batch.source_lengths, batch.source.shape[1])[:, None, None]
        states = self._with_positions(with_features(self.source_embedding(batch.source), features))
        for layer in self.encoder:
            states = layer(states, valid)
        states = self.encoder_norm(states)
        sources = (cast(DecoderLayer, layer).multihead_attn.keys_values(states) for layer in self.decoder)
        return TransformerMemory(tuple(sources), valid, features)

    def _embed_target(
        self, tokens: Int[Tensor, "N J"], memory: TransformerMemory, first: int = 0
    ) -> Float[Tensor, "N J H"]:
        """Vectors of target tokens at positions from ``first`` on."""
        table = self.output if self.target_embedding is None else self.target_embedding
        return self._with_positions(with_features(embedding(tokens, table.weight), memory.features), first)

    def _with_positions(self, embedded: Float[Tensor, "N T H"], first: int = 0) -> Float[Tensor, "N T H"]:
        scaled = embedded * sqrt(embedded.shape[2]) + position_vectors(first, embedded)
        dropped: Tensor = self.dropout(scaled)
        return dropped


def _embedding(vocabulary_size: int, size: int) -> nn.Embedding:
    """Vectors of about unit length, which are scaled up where they are added to position vectors."""
    table = nn.Embedding(vocabulary_size, size)
    nn.init.normal_(table.weight, std=size**-0.5)
    return table
