"""What every network offers that is trained on pairs: the log probability of each target."""

from abc import abstractmethod
from typing import Protocol, TypedDict, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from antiphon.data.batch import Batch
from antiphon.models.token_likelihood import log_likelihood
from antiphon.nn.recurrent import FeatureEmbedding


class SequenceModel(Protocol):
    """A network that scores pairs."""

    def log_prob(self, batch: Batch) -> Tensor:
        """``log p(y | x)`` of each pair."""
        ...


class LSTMSettings(TypedDict):
    """The keyword arguments that models made of LSTMs have in common."""

    hidden_size: int
    embedding_size: int
    layers: int
    dropout: float
    forget_bias: float


class TokenModel(nn.Module):
    """A network that scores pairs by the logits of every token after the tokens before it."""

    features: FeatureEmbedding | None

    @abstractmethod
    def logits(self, batch: Batch) -> Float[Tensor, "B J V"]:
        """The logits of every token at each position of the targets."""

    def log_prob(self, batch: Batch, label_smoothing: float = 0.0) -> Float[Tensor, " B"]:
        """``log p(y | x)`` of each pair; in training, with label smoothing."""
        return log_likelihood(self.logits(batch), batch, label_smoothing)

    def feature_vectors(self, batch: Batch) -> Float[Tensor, "B E"] | None:
        """The vector of the features of each pair, if the model reads features."""
        return None if self.features is None else self.features(batch.features)

    def forward(self, batch: Batch) -> Float[Tensor, " B"]:
        """``log p(y | x)`` of each pair: the same as ``log_prob``."""
        return self.log_prob(batch)


@torch.inference_mode()
def log_prob(model: nn.Module, batch: Batch) -> Float[Tensor, " B"]:
    """The log probability of each target, without a gradient."""
    return cast(SequenceModel, model).log_prob(batch)
