"""A pretrained encoder that reads a question and a sentence together."""

from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from antiphon.ranking.joint_batches import JointBatch
from antiphon.ranking.matcher import PairModel
from antiphon.ranking.pooling import Pooling, pool_states
from antiphon.ranking.pretrained_sentence import text_inputs


class CrossEncoder(PairModel):
    """``p(right | x, y) = sigmoid(w s + b)``, where ``s`` are the pooled states of the encoder over both texts at once.

    Every word of the sentence attends to every word of the question, which separate sentence vectors do not allow; in
    return, a sentence has to be encoded again for each question.
    """

    def __init__(self, encoder: nn.Module, pooling: Pooling) -> None:
        super().__init__()
        self.encoder, self.pooling = encoder, pooling
        self.score = nn.Linear(cast(Any, encoder.config).hidden_size, 1)

    def forward(self, batch: JointBatch) -> Float[Tensor, " B"]:
        """The log odds that each sentence answers its question."""
        return self._log_odds(batch, text_inputs(self.encoder, batch.tokens, batch.valid))

    def start_at(self, log_odds: float) -> None:
        """Sets the output bias, so that training starts from these log odds."""
        nn.init.constant_(self.score.bias, log_odds)

    def saliency(self, batch: JointBatch) -> Float[Tensor, "B I"]:
        """How much each token changes the log odds: the gradient at its vector times the vector, as absolute value."""
        inputs = text_inputs(self.encoder, batch.tokens, batch.valid)
        with torch.enable_grad():
            vectors = cast(Any, self.encoder).get_input_embeddings()(inputs.pop("input_ids")).detach().requires_grad_()
            log_odds = self._log_odds(batch, inputs | {"inputs_embeds": vectors}).sum()
            (gradient,) = torch.autograd.grad(log_odds, vectors)
        weights: Tensor = (gradient * vectors.detach()).sum(2).abs() * batch.valid
        return weights

    def _log_odds(self, batch: JointBatch, inputs: dict[str, Tensor]) -> Float[Tensor, " B"]:
        if (getattr(self.encoder.config, "type_vocab_size", None) or 0) > 1:
            inputs = inputs | {"token_type_ids": batch.token_types}
        states: Tensor = self.encoder(**inputs).last_hidden_state
        pooled = pool_states(states, batch.valid, self.pooling)
        return cast(Tensor, self.score(pooled))[:, 0]
