"""A recurrent language model over targets; features, where there are any, are read before them.

    state_0    = state of the LSTM after the features
    s_j, state = LSTM(state, y_{j-1})
    p(y_j)     = softmax(W s_j + b)

Thesis: section 3.3. Features make one model of what would be a model for each tag.
"""

from jaxtyping import Float, Int
from torch import Tensor, nn

from antiphon.data.batch import Batch
from antiphon.nn.recurrent import Embedding, LSTMState, PrefixEncoder, Sizes, select_states
from antiphon.nn.token_likelihood import log_likelihood


class LanguageModel(nn.Module):
    """p(y | features) token by token; the source of a batch holds the features alone."""

    def __init__(
        self,
        source_size: int,
        target_size: int,
        *,
        hidden_size: int = 512,
        embedding_size: int = 512,
        layers: int = 2,
        dropout: float = 0.0,
        forget_bias: float = 0.0,
    ) -> None:
        super().__init__()
        self.feature_embedding = Embedding(source_size, embedding_size)
        self.decoder = PrefixEncoder(target_size, Sizes(embedding_size, hidden_size, layers, dropout, forget_bias))
        self.output = nn.Linear(hidden_size, target_size)

    def log_prob(self, batch: Batch) -> Float[Tensor, " B"]:
        """``log p(y | features)`` of each target."""
        states, _ = self.decoder(batch.shifted_target, self.start(batch)[1])
        return log_likelihood(self.output(states), batch)

    def start(self, batch: Batch) -> tuple[tuple[()], LSTMState]:
        """The state after the features and their end symbol; nothing else is kept of them."""
        return (), self.decoder.lstm.last_state(self.feature_embedding(batch.source), batch.source_lengths)

    def step(
        self, memory: tuple[()], state: LSTMState, tokens: Int[Tensor, " N"], sentence: Int[Tensor, " N"]
    ) -> tuple[Float[Tensor, "N V"], LSTMState]:
        """Log probabilities of the token after these, and the state to go on from."""
        states, state = self.decoder(tokens[:, None], state)
        return self.output(states[:, 0]).log_softmax(1), state

    def select(self, state: LSTMState, index: Int[Tensor, " N"]) -> LSTMState:
        """The states of some hypotheses."""
        return select_states(state, index)
