"""The interface of models that decoding uses: log probabilities of the next token after each prefix."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int
from torch import Tensor

from antiphon.data.batch import Batch

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
    (``data/augmentation.py``).
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
