"""The basic sequence-to-sequence model: the last state of the encoder is the first state of the decoder.

    state_0    = state of an LSTM after the whole source, features added to every token
    s_j, state = LSTM(state, y_{j-1})
    p(y_j)     = softmax(W s_j + b)

Thesis: section 2.5.1.
"""

from typing import Unpack

from jaxtyping import Float, Int
from torch import Tensor, nn

from antiphon.data.batch import Batch
from antiphon.models.sequence_model import LSTMSettings, TokenModel
from antiphon.nn.dropout import Dropout
from antiphon.nn.recurrent import (
    LSTM,
    Embedding,
    FeatureEmbedding,
    LSTMSizes,
    LSTMState,
    PrefixEncoder,
    select_states,
    with_features,
)


class EncoderDecoder(TokenModel):
    """p(y | x) token by token, from one vector for the whole source."""

    def __init__(
        self, source_size: int, target_size: int, feature_size: int = 0, **settings: Unpack[LSTMSettings]
    ) -> None:
        super().__init__()
        sizes = LSTMSizes(**settings)
        self.source_embedding = Embedding(source_size, sizes.embedding_size)
        self.features = FeatureEmbedding(feature_size, sizes.embedding_size) if feature_size else None
        self.encoder = LSTM(sizes.embedding_size, sizes.hidden_size, sizes.layers, sizes.dropout, sizes.forget_bias)
        self.decoder = PrefixEncoder(target_size, sizes)
        self.dropout = Dropout(sizes.dropout)
        self.output = nn.Linear(sizes.hidden_size, target_size)

    def logits(self, batch: Batch) -> Float[Tensor, "B J V"]:
        """The logits of every token at each position of the targets."""
        states, _ = self.decoder(batch.shifted_target, self.start(batch)[1])
        logits: Tensor = self.output(states)
        return logits

    def start(self, batch: Batch) -> tuple[tuple[()], LSTMState]:
        """The state after the whole source, which the decoder starts from; nothing else of the source is kept."""
        embedded = self.dropout(with_features(self.source_embedding(batch.source), self.feature_vectors(batch)))
        return (), self.encoder.last_state(embedded, batch.source_lengths)

    def step(
        self, memory: tuple[()], state: LSTMState, tokens: Int[Tensor, " N"], sentence: Int[Tensor, " N"]
    ) -> tuple[Float[Tensor, "N V"], LSTMState]:
        """Log probabilities of the token after these, and the state to continue from."""
        states, state = self.decoder(tokens[:, None], state)
        return self.output(states[:, 0]).log_softmax(1), state

    def select(self, state: LSTMState, index: Int[Tensor, " N"]) -> LSTMState:
        """The states of some hypotheses."""
        return select_states(state, index)
