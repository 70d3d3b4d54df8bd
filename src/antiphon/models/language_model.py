"""A recurrent language model over targets; the vector of features, if any, is added to every token.

    s_j, state = LSTM(state, e(y_{j-1}) + sum of e(feature))
    p(y_j)     = softmax(W s_j + b)

Thesis: section 2.4. With features, one model replaces a model for each tag.
"""

from typing import Unpack

from jaxtyping import Float, Int
from torch import Tensor, nn

from antiphon.data.batch import Batch
from antiphon.models.sequence_model import LSTMSettings, TokenModel
from antiphon.nn.recurrent import FeatureEmbedding, LSTMSizes, LSTMState, PrefixEncoder, select_states


class LanguageModel(TokenModel):
    """p(y | features) token by token; sources are ignored."""

    def __init__(
        self, source_size: int, target_size: int, feature_size: int = 0, **settings: Unpack[LSTMSettings]
    ) -> None:
        super().__init__()
        sizes = LSTMSizes(**settings)
        self.features = FeatureEmbedding(feature_size, sizes.embedding_size) if feature_size else None
        self.decoder = PrefixEncoder(target_size, sizes)
        self.output = nn.Linear(sizes.hidden_size, target_size)

    def logits(self, batch: Batch) -> Float[Tensor, "B J V"]:
        """The logits of every token at each position of the targets."""
        states, _ = self.decoder(batch.shifted_target, None, self.start(batch)[0])
        logits: Tensor = self.output(states)
        return logits

    def start(self, batch: Batch) -> tuple[Float[Tensor, "B E"] | None, LSTMState]:
        """The vector of each target's features, and the state before the start symbol."""
        return self.feature_vectors(batch), self.decoder.initial_state(batch.features.shape[0])

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

    def select(self, state: LSTMState, index: Int[Tensor, " N"]) -> LSTMState:
        """The states of some hypotheses."""
        return select_states(state, index)
