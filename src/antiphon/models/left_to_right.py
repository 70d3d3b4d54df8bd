"""The interfaces of models: log probabilities of the next token after each prefix, and those of whole pairs.

Decoding uses the first (``LeftToRight``), training and scoring the second (``SequenceModel``). What they need of any
model is here too: which tokens are never written, outputs that begin with a given prefix, the likelihood of tokens.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from antiphon.data.batch import Batch
from antiphon.lattice.paths import IMPOSSIBLE
from antiphon.nn.recurrent import FeatureEmbedding
from antiphon.torch_free.hypothesis import Hypothesis
from antiphon.torch_free.two_ways import with_both
from antiphon.torch_free.vocab import END, PAD, START, UNKNOWN

_MAX_RESERVED = 2**17
"""Largest number of positions, of all hypotheses together, that is reserved for states that grow."""


@runtime_checkable
class LeftToRight(Protocol):
    """A model of the next token. ``memory`` holds the encoded sources, ``state`` the state after each prefix.

    A model may also have the attributes that the functions below look for: ``copies_unknown``; ``state_grows``, with a
    method ``reserve``; ``steps_differ``; and ``is_long``, if it is a ``BandedModel``. Without them the answer is no.
    """

    def start(self, batch: Batch) -> tuple[Any, Any]:
        """Memory, and the state before the start symbol of every sentence."""
        ...

    def step(self, memory: Any, state: Any, tokens: Tensor, sentence: Tensor) -> tuple[Tensor, Any]:
        """Log probabilities of the next token after each prefix, and the next state.

        ``tokens`` has the last token of each prefix, ``state`` the state before it; prefix ``n`` belongs to source
        ``sentence[n]``.
        """
        ...

    def select(self, state: Any, index: Tensor) -> Any:
        """The states of some prefixes."""
        ...


class RowBand(NamedTuple):
    """Log probabilities of ``R`` consecutive input positions (rows) after each prefix; other rows have next to none."""

    first_row: int
    log_prob: Float[Tensor, "N R"]

    @property
    def stop_row(self) -> int:
        """The row after the last one."""
        return self.first_row + self.log_prob.shape[1]


class AlignedModel(LeftToRight, Protocol):
    """A model that knows the input position (row) at which each token is written."""

    def log_rows(self, memory: Any, state: Any, parent: Tensor, tokens: Tensor, sentence: Tensor) -> RowBand:
        """Log probabilities of the row in which one more token after each parent was written."""
        ...


class BandedModel(AlignedModel, Protocol):
    """A model that decodes long sources in a band of rows, and can be stuck there."""

    def is_long(self, memory: Any) -> bool:
        """Whether a source is so long that the search must limit how many hypotheses share a row."""
        ...

    def long_sources(self, memory: Any) -> Bool[Tensor, " B"]:
        """Which sources are that long."""
        ...

    def next_rows(self, state: Any) -> Int[Tensor, " N"]:
        """The row in which each prefix will most probably write next."""
        ...


def copies_unknown(model: object) -> bool:
    """Whether a model copies: the unknown token in its output stands for the input token at its position.

    A model learns to copy from training pairs in which a token of both sides was made unknown
    (``training/augmentation.py``).
    """
    return bool(getattr(model, "copies_unknown", False))


def is_long(model: Any, memory: Any) -> bool:
    """Whether a model decodes these sources in a band of rows (``BandedModel``)."""
    return hasattr(model, "is_long") and bool(model.is_long(memory))


def state_grows(model: object) -> bool:
    """Whether the state of a prefix gets larger with every token where nothing is reserved."""
    return bool(getattr(model, "state_grows", False))


def static_fits(model: object, positions: int) -> bool:
    """Whether steps can have static shapes and be captured as a CUDA graph.

    All steps must compute the same: a model whose steps do not says so by ``steps_differ``. States that grow are
    reserved for ``positions``, of all hypotheses together, which must not be too many.
    """
    if getattr(model, "steps_differ", False):
        return False
    return not state_grows(model) or positions <= _MAX_RESERVED


def reserve(model: Any, state: Any, length: int) -> Any:
    """A state with room for prefixes of a length, so that the shapes of steps are static for every model."""
    return model.reserve(state, length) if state_grows(model) else state


class SequenceModel(Protocol):
    """A network that scores pairs."""

    def log_prob(self, batch: Batch) -> Tensor:
        """``log p(y | x)`` of each pair."""
        ...


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


def as_hypotheses(
    model: LeftToRight, batch: Batch, sources: Sequence[int], outputs: Sequence[tuple[int, ...]]
) -> list[Hypothesis]:
    """Each output, the end symbol last, as a hypothesis for the source with its index in the batch.

    With a right-to-left twin it has the probability of both, and its tokens have those of the model.
    """
    found, twin = token_hypotheses(model, batch, sources, outputs), twin_of(model)
    return found if twin is None else with_both(found, backward_log_probs(twin, batch, sources, outputs))


@torch.inference_mode()
def token_hypotheses(
    model: LeftToRight, batch: Batch, sources: Sequence[int], outputs: Sequence[tuple[int, ...]]
) -> list[Hypothesis]:
    """The same by the model alone, without a twin."""
    rows = token_log_probs(model, output_pairs(batch, sources, outputs)).tolist()
    each = [tuple(row[: len(output)]) for row, output in zip(rows, outputs, strict=True)]
    return [Hypothesis(output, sum(row), sum(row), row) for output, row in zip(outputs, each, strict=True)]


@torch.inference_mode()
def backward_log_probs(
    twin: LeftToRight, batch: Batch, sources: Sequence[int], outputs: Sequence[tuple[int, ...]]
) -> list[float]:
    """The log probability that a right-to-left twin gives to each output of the source with its index."""
    found: list[float] = token_log_probs(twin, output_pairs(batch, sources, outputs).reversed()).sum(1).tolist()
    return found


def twin_of(model: object) -> Any:
    """The right-to-left twin of a model, ``models/two_way_transducer.py``, or None."""
    return getattr(model, "reverse", None)


def output_pairs(batch: Batch, sources: Sequence[int], outputs: Sequence[Sequence[int]]) -> Batch:
    """A pair for each output, whose source is given by its index in the batch; outputs end in the end symbol."""
    index = torch.tensor(sources, dtype=torch.long, device=batch.source.device)
    targets = Batch.of([], [np.array(output[:-1], np.int32) for output in outputs]).to(index.device)
    pairs = Batch(*(tensor[index] for tensor in batch))
    return pairs._replace(target=targets.target, target_lengths=targets.target_lengths)


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


def never_written(model: object, *, replace_unknown: bool = False) -> list[int]:
    """Tokens that a search never writes; the unknown one only if it is not replaced by a source token later."""
    return [PAD, START] if replace_unknown or copies_unknown(model) else [PAD, UNKNOWN, START]


def is_no_end(log_probs: Float[Tensor, "... V"]) -> Bool[Tensor, " V"]:
    """True at every token but the end symbol, to mask outputs that must end."""
    return torch.arange(log_probs.shape[-1], device=log_probs.device) != END


def with_prefix(model: LeftToRight, prefix: Sequence[int]) -> LeftToRight:
    """A model whose outputs all begin with ``prefix``."""
    return PrefixModel(model, prefix) if prefix else model


class PrefixModel:
    """A model that gives all tokens but the next one of a prefix no probability, in one search after another.

    Log probabilities, and everything but ``start`` and ``step``, are the model's own.
    """

    steps_differ = True
    """Steps that write the prefix differ from later ones, so none is captured as a CUDA graph."""

    def __init__(self, model: Any, prefix: Sequence[int]) -> None:
        self._model, self._prefix, self._remaining = model, tuple(prefix), list(prefix)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def start(self, batch: Batch) -> tuple[Any, Any]:
        """Memory and first state of a search, which writes the whole prefix first."""
        self._remaining = list(self._prefix)
        return cast(tuple[Any, Any], self._model.start(batch))

    def step(self, memory: Any, state: Any, tokens: Tensor, sentence: Tensor) -> tuple[Tensor, Any]:
        """Log probabilities of the next token; until the prefix is written, only its next token is possible."""
        log_next, state = self._model.step(memory, state, tokens, sentence)
        if self._remaining:
            token = self._remaining.pop(0)
            log_token = log_next[:, token].clone()
            log_next = log_next.new_full(log_next.shape, IMPOSSIBLE)
            log_next[:, token] = log_token
        return log_next, state
