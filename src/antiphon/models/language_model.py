"""A recurrent language model over targets, which knows nothing of sources.

Thesis: section 3.3.
"""

from jaxtyping import Float, Int
from torch import Tensor, nn

from antiphon.data.batch import Batch
from antiphon.nn.recurrent import LSTMState, PrefixEncoder
from antiphon.nn.token_likelihood import log_likelihood


class LanguageModel(nn.Module):
    """p(y) token by token."""

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
        self.decoder = PrefixEncoder(
            target_size,
            embedding_size=embedding_size,
            hidden_size=hidden_size,
            layers=layers,
            dropout=dropout,
            forget_bias=forget_bias,
        )
        self.output = nn.Linear(hidden_size, target_size)

    def log_prob(self, batch: Batch) -> Float[Tensor, " B"]:
        """``log p(y)`` of each target."""
        states, _ = self.decoder(batch.shifted_target)
        return log_likelihood(self.output(states), batch)

    def step(self, tokens: Int[Tensor, " N"], state: LSTMState | None = None) -> tuple[Float[Tensor, "N V"], LSTMState]:
        """Log probabilities of the token after these, and the state to go on from."""
        states, state = self.decoder(tokens[:, None], state)
        return self.output(states[:, 0]).log_softmax(1), state
