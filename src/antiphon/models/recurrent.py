"""Models made of LSTMs without a lattice: from one vector for the source, with attention to it, or without a source.

Their keyword arguments are those of ``LSTMSizes``.
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from antiphon.data.batch import Batch
from antiphon.models.left_to_right import TokenModel, select
from antiphon.nn.recurrent import (
    LSTM,
    Dropout,
    Embedding,
    FeatureEmbedding,
    LSTMSizes,
    LSTMState,
    PrefixEncoder,
    SourceEncoder,
    valid_positions,
    with_features,
)


class LSTMDecoder(TokenModel):
    """p(y_j) = softmax(W s_j + b), where s_j is the state of an LSTM over the prefix, which begins in a given state."""

    decoder: PrefixEncoder
    output: nn.Linear

    @abstractmethod
    def start(self, batch: Batch) -> tuple[Float[Tensor, "B E"] | None, LSTMState]:
        """The vector that is added to every token of each target, if any, and the state before the start symbol."""

    def logits(self, batch: Batch) -> Float[Tensor, "B J V"]:
        """The logits of every token at each position of the targets."""
        added, state = self.start(batch)
        states, _ = self.decoder(batch.shifted_target, state, added)
        logits: Tensor = self.output(states)
        return logits

    def step(
        self,
        memory: Float[Tensor, "B E"] | None,
        state: LSTMState,
        tokens: Int[Tensor, " N"],
        sentence: Int[Tensor, " N"],
    ) -> tuple[Float[Tensor, "N V"], LSTMState]:
        """Log probabilities of the token after these, and the state to continue from."""
        states, state = self.decoder(tokens[:, None], state, None if memory is None else memory[sentence])
        return self.output(states[:, 0]).log_softmax(1), state


class LanguageModel(LSTMDecoder):
    """p(y | features) token by token; sources are ignored, and the vector of the features is added to every token.

    Thesis: section 2.4. With features, one model replaces a model for each tag.
    """

    def __init__(self, source_size: int, target_size: int, feature_size: int = 0, **settings: Any) -> None:
        super().__init__()
        sizes = LSTMSizes(**settings)
        self.features = FeatureEmbedding(feature_size, sizes.embedding_size) if feature_size else None
        self.decoder = PrefixEncoder(target_size, sizes)
        self.output = nn.Linear(sizes.hidden_size, target_size)

    def start(self, batch: Batch) -> tuple[Float[Tensor, "B E"] | None, LSTMState]:
        """The vector of each target's features, and a state of zeros."""
        return self.feature_vectors(batch), self.decoder.initial_state(batch.features.shape[0])


class EncoderDecoder(LSTMDecoder):
    """p(y | x) token by token, from one vector: the state of an LSTM after the source, where the decoder begins.

    Features are added to every token of the source. Thesis: section 2.5.1.
    """

    def __init__(self, source_size: int, target_size: int, feature_size: int = 0, **settings: Any) -> None:
        super().__init__()
        sizes = LSTMSizes(**settings)
        self.source_embedding = Embedding(source_size, sizes.embedding_size)
        self.features = FeatureEmbedding(feature_size, sizes.embedding_size) if feature_size else None
        self.encoder = LSTM(sizes.embedding_size, sizes.hidden_size, sizes.layers, sizes.dropout, sizes.forget_bias)
        self.decoder = PrefixEncoder(target_size, sizes)
        self.dropout = Dropout(sizes.dropout)
        self.output = nn.Linear(sizes.hidden_size, target_size)

    def start(self, batch: Batch) -> tuple[None, LSTMState]:
        """The state after the whole source; nothing else of the source is kept."""
        embedded = self.dropout(with_features(self.source_embedding(batch.source), self.feature_vectors(batch)))
        return None, self.encoder.last_state(embedded, batch.source_lengths)


class AttentionMemory(NamedTuple):
    """What the decoder attends to: source states, their part of the attention scores, and which positions are real."""

    states: Float[Tensor, "N I H2"]
    keys: Float[Tensor, "N I H"]
    valid: Bool[Tensor, "N I"]


class AttentionState(NamedTuple):
    """The decoder after each prefix: hidden and cell values of every layer."""

    hidden: tuple[Tensor, ...]
    cell: tuple[Tensor, ...]


class Attention(TokenModel):
    """p(y | x) token by token, each with its own attention over the source.

    h_i        state of the source at position i, from both ends; features are added to every token
    a_ij       softmax over i of  v . tanh(A_h h_i + A_s s_{j-1})
    c_j        sum over i of  a_ij h_i
    s_j        LSTM(s_{j-1}, [y_{j-1}; c_j])
    p(y_j)     softmax(W tanh(U [s_j; c_j] + b) + d)

    Thesis: section 2.5.2.
    """

    def __init__(self, source_size: int, target_size: int, feature_size: int = 0, **settings: Any) -> None:
        super().__init__()
        sizes = LSTMSizes(**settings)
        self.encoder = SourceEncoder(source_size, sizes, bidirectional=True)
        self.features = FeatureEmbedding(feature_size, sizes.embedding_size) if feature_size else None
        hidden_size, memory_size = sizes.hidden_size, self.encoder.output_size
        self.embedding = Embedding(target_size, sizes.embedding_size)
        inputs = [sizes.embedding_size + memory_size] + [hidden_size] * (sizes.layers - 1)
        self.cells = nn.ModuleList(nn.LSTMCell(size, hidden_size) for size in inputs)
        self.first_hidden = nn.Linear(memory_size, hidden_size)
        self.key = nn.Linear(memory_size, hidden_size)
        self.query = nn.Linear(hidden_size, hidden_size, bias=False)
        self.score = nn.Linear(hidden_size, 1, bias=False)
        self.combine = nn.Linear(hidden_size + memory_size, hidden_size)
        self.output = nn.Linear(hidden_size, target_size)
        self.dropout = Dropout(sizes.dropout)

    def logits(self, batch: Batch) -> Float[Tensor, "B J V"]:
        """The logits of every token at each position of the targets."""
        return self._teacher_forced(batch)[0]

    def attention(self, batch: Batch) -> Float[Tensor, "B I J"]:
        """The attention weight of each source position for each target token: not an alignment."""
        return self._teacher_forced(batch)[1]

    def start(self, batch: Batch) -> tuple[AttentionMemory, AttentionState]:
        """The sources, encoded; the decoder's first hidden state is computed from the mean of the source states."""
        states = self.encoder(batch.source, batch.source_lengths, self.feature_vectors(batch))
        valid = valid_positions(batch.source_lengths, batch.source.shape[1])
        mean = (states * valid[:, :, None]).sum(1) / batch.source_lengths[:, None]
        hidden = torch.tanh(self.first_hidden(mean))
        layers = len(self.cells)
        return AttentionMemory(states, self.key(states), valid), AttentionState(
            (hidden,) * layers, (torch.zeros_like(hidden),) * layers
        )

    def step(
        self, memory: AttentionMemory, state: AttentionState, tokens: Int[Tensor, " N"], sentence: Int[Tensor, " N"]
    ) -> tuple[Float[Tensor, "N V"], AttentionState]:
        """Log probabilities of the token after these, and the state to continue from."""
        features, state, _ = self._advance(select(memory, sentence), self.dropout(self.embedding(tokens)), state)
        return self.output(features).log_softmax(1), state

    def _teacher_forced(self, batch: Batch) -> tuple[Float[Tensor, "B J V"], Float[Tensor, "B I J"]]:
        """Logits and attention weights of every target token, given the target tokens before it."""
        memory, state = self.start(batch)
        features, attention = [], []
        for token in self.dropout(self.embedding(batch.shifted_target)).unbind(1):
            feature, state, weights = self._advance(memory, token, state)
            features.append(feature)
            attention.append(weights)
        return self.output(torch.stack(features, 1)), torch.stack(attention, 2)

    def _advance(
        self, memory: AttentionMemory, token: Float[Tensor, "N E"], state: AttentionState
    ) -> tuple[Float[Tensor, "N H"], AttentionState, Float[Tensor, "N I"]]:
        """The input of the output layer, the state to continue from, and the attention weights."""
        scores = self.score(torch.tanh(memory.keys + self.query(state.hidden[-1])[:, None]))[:, :, 0]
        weights = scores.masked_fill(~memory.valid, float("-inf")).softmax(1)
        context = torch.bmm(weights[:, None], memory.states)[:, 0]
        outputs = torch.cat([token, context], 1)
        hidden, cell = [], []
        for layer, (before, carried) in zip(self.cells, zip(*state, strict=True), strict=True):
            outputs, memory_cell = layer(outputs, (before, carried))
            hidden.append(outputs)
            cell.append(memory_cell)
            outputs = self.dropout(outputs)
        features = self.dropout(torch.tanh(self.combine(torch.cat([outputs, context], 1))))
        return features, AttentionState(tuple(hidden), tuple(cell)), weights
