"""The interface of models that decoding uses: log probabilities of the next token after each prefix."""

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Bool, Float
from torch import Tensor

from antiphon.data.batch import Batch

_MAX_RESERVED = 2**17
"""Positions of all hypotheses together that are reserved at most for states that grow with every token."""


@runtime_checkable
class LeftToRight(Protocol):
    """A model of the next token. ``memory`` holds the encoded sources, ``state`` the state after each prefix."""

    def start(self, batch: Batch) -> tuple[Any, Any]:
        """Memory, and the state before the start symbol of every sentence."""
        ...

    def step(self, memory: Any, state: Any, tokens: Tensor, sentence: Tensor) -> tuple[Tensor, Any]:
        """Log probabilities of the token after these, which belong to prefixes of a sentence, and the next state."""
        ...

    def select(self, state: Any, index: Tensor) -> Any:
        """The states of some prefixes."""
        ...


class AlignedModel(LeftToRight, Protocol):
    """A model that knows the input position (row) at which each token is written."""

    def is_long(self, memory: Any) -> bool:
        """Whether a source is so long that the search must limit how many hypotheses share a row."""
        ...

    def long_sources(self, memory: Any) -> Bool[Tensor, " B"]:
        """Which sources are that long."""
        ...

    def unfinished_row(self, memory: Any, state: Any) -> int | None:
        """The row in which hypotheses will write next, or None if a source ends there."""
        ...

    def log_rows(
        self, memory: Any, state: Any, parent: Tensor, tokens: Tensor, sentence: Tensor
    ) -> tuple[int, Float[Tensor, "N R"]]:
        """The first row of a band, and log probabilities of the rows of one more token after each parent."""
        ...


def copies_unknown(model: object) -> bool:
    """Whether a model copies: the unknown token in its output stands for the input token at its position.

    A model learns to copy from training pairs in which a token of both sides was made unknown
    (``data/augmentation.py``).
    """
    return bool(getattr(model, "copies_unknown", False))


def state_grows(model: object) -> bool:
    """Whether the state of a prefix gets larger with every token where nothing is reserved."""
    return bool(getattr(model, "state_grows", False))


def static_fits(model: object, positions: int) -> bool:
    """Whether steps can have static shapes and be captured as a CUDA graph.

    They must all compute the same, and states that grow must not have too many positions, of all hypotheses together.
    """
    if getattr(model, "steps_differ", False):
        return False
    return not state_grows(model) or positions <= _MAX_RESERVED


def reserve(model: Any, state: Any, length: int) -> Any:
    """A state with room for prefixes of a length, so that the shapes of steps are static for every model."""
    return model.reserve(state, length) if state_grows(model) else state
