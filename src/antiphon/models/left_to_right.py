"""The interface of models: log probabilities of the next token after each prefix, and those of whole pairs.

What decoding and training need of any model is here too: its states, which tokens are never written, the likelihood of
tokens.

A state is a nested tuple of tensors, whose axis of sequences is the first unless the class of a tuple names another.
What is no tensor, such as None for a part that is missing, stays as it is.
"""

from abc import abstractmethod
from functools import partial
from typing import Any, Protocol, TypeVar, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from antiphon.data.batch import Batch
from antiphon.nn.recurrent import FeatureEmbedding
from antiphon.torch_free.hypothesis import OutputScorer
from antiphon.torch_free.vocab import END, PAD, START, UNKNOWN

State = TypeVar("State")
_MAX_RESERVED = 2**17
"""Largest number of positions, of all hypotheses together, that is reserved for states that grow."""


def select(state: State, index: Int[Tensor, " M"], axis: int = 0) -> State:
    """The states of some sequences; written out, since a search calls it for every token."""
    given: Any = state
    if isinstance(given, Tensor):
        return given.index_select(axis, index)  # type: ignore[return-value]
    if not isinstance(given, tuple):
        return state
    axis = getattr(given, "axis", 0)
    parts = [select(part, index, axis) for part in given]
    return given._make(parts) if hasattr(given, "_make") else tuple(parts)  # type: ignore[return-value]


def join(state: State, others: State, axis: int = 0) -> State:
    """The states of these sequences and of others."""
    given: Any = state
    if isinstance(given, Tensor):
        return torch.cat([given, cast(Tensor, others)], axis)  # type: ignore[return-value]
    if not isinstance(given, tuple):
        return state
    axis = getattr(given, "axis", 0)
    parts = [join(*both, axis) for both in zip(given, cast(Any, others), strict=True)]
    return given._make(parts) if hasattr(given, "_make") else tuple(parts)  # type: ignore[return-value]


def put(state: State, index: Int[Tensor, " M"] | slice, part: State, axis: int = 0) -> State:
    """The state with that of some sequences replaced in place."""
    whole: Any = state
    if isinstance(whole, Tensor):
        whole[(slice(None),) * axis + (index,)] = cast(Tensor, part)
    elif isinstance(whole, tuple):
        axis = getattr(whole, "axis", 0)
        for each, new in zip(whole, cast(Any, part), strict=True):
            put(each, index, new, axis)
    return state


class LeftToRight(nn.Module):
    """A model of the next token. ``memory`` holds the encoded sources, ``state`` the state after each prefix.

    A state is a nested tuple of tensors.
    """

    copies_unknown = False
    """Whether the unknown token in an output stands for the input token at its position.

    A model learns to copy from training pairs in which a token of both sides was made unknown
    (``training/augmentation.py``).
    """
    copies_words = False
    """Whether the tokens of an output may be words of the source that the vocabulary lacks (``nn/copying.py``)."""
    state_grows = False
    """Whether the state of a prefix gets larger with every token where nothing is reserved."""

    @property
    def twin(self) -> Any:
        """The model that reads and writes from the right, if there is one."""
        return None

    @abstractmethod
    def start(self, batch: Batch) -> tuple[Any, Any]:
        """Memory, and the state before the start symbol of every sentence."""

    @abstractmethod
    def step(self, memory: Any, state: Any, tokens: Tensor, sentence: Tensor) -> tuple[Tensor, Any]:
        """Log probabilities of the next token after each prefix, and the next state.

        ``tokens`` has the last token of each prefix, ``state`` the state before it; prefix ``n`` belongs to source
        ``sentence[n]``.
        """

    def reserve(self, state: Any, length: int) -> Any:
        """A state with room for prefixes of a length, so that the shapes of steps are static for every model."""
        return state

    def static_fits(self, positions: int) -> bool:
        """Whether steps can have static shapes and be captured as a CUDA graph.

        States that grow are reserved for ``positions``, of all hypotheses together, which must not be too many.
        """
        return not self.state_grows or positions <= _MAX_RESERVED

    @abstractmethod
    def log_prob(self, batch: Batch) -> Float[Tensor, " B"]:
        """``log p(y | x)`` of each pair."""

    def forward(self, batch: Batch) -> Float[Tensor, " B"]:
        """``log p(y | x)`` of each pair: the same as ``log_prob``."""
        return self.log_prob(batch)


class AlignedModel(Protocol):
    """A model that knows the input position (row) at which each token is written."""

    def log_rows(self, memory: Any, state: Any, parent: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        """Log probabilities of the row in which one more token after each parent was written, ``N x I``."""
        ...

    def next_rows(self, state: Any) -> Int[Tensor, " N"]:
        """The row in which each prefix will most probably write next; ensembles lack this."""
        ...


class TokenModel(LeftToRight):
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


@torch.inference_mode()
def log_prob(model: nn.Module, batch: Batch) -> Float[Tensor, " B"]:
    """The log probability of each target, without a gradient."""
    return cast(LeftToRight, model).log_prob(batch)


def log_likelihood(logits: Float[Tensor, "B J V"], batch: Batch, label_smoothing: float = 0.0) -> Float[Tensor, " B"]:
    """The summed log probabilities of the tokens of each target; padding is ignored.

    With label smoothing ``e``: ``(1 - e) log p(y_j) + e (mean over v of log p(v))`` instead of ``log p(y_j)``.
    """
    losses = cross_entropy(
        logits.flatten(0, 1),
        batch.target.flatten(),
        ignore_index=PAD,
        reduction="none",
        label_smoothing=label_smoothing,
    )
    return -losses.view(batch.target.shape).sum(1)


def output_scorer(model: LeftToRight, batch: Batch) -> OutputScorer[Batch]:
    """Scores outputs for the sources of a batch, by the model and its twin, if it has one, without gradient."""
    score, twin = torch.inference_mode()(token_log_probs), model.twin
    return OutputScorer(batch, partial(score, model), None if twin is None else partial(score, twin))


def token_log_probs(model: LeftToRight, batch: Batch) -> Float[Tensor, "B J"]:
    """Log probabilities of the tokens of each target, by decoding steps, as doubles; 0 at padding."""
    memory, state = model.start(batch)
    sentence = torch.arange(len(batch.target), device=batch.target.device)
    token, columns = torch.full_like(sentence, START), []
    for position, following in enumerate(batch.target.unbind(1)):
        log_next, state = model.step(memory, state, token, sentence)
        log_token = log_next.gather(1, following[:, None])[:, 0].double()
        columns.append(torch.where(position < batch.target_lengths, log_token, 0.0))
        token = following
    return torch.stack(columns, 1)


def never_written(model: LeftToRight) -> list[int]:
    """Tokens that a search never writes; the unknown one only if it is not replaced by a source token later."""
    return [PAD, START] if model.copies_unknown else [PAD, UNKNOWN, START]


def is_no_end(log_probs: Float[Tensor, "... V"]) -> Bool[Tensor, " V"]:
    """True at every token but the end symbol, to mask outputs that must end."""
    return torch.arange(log_probs.shape[-1], device=log_probs.device) != END
