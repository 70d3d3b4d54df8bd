"""Tokens that a search may write: not all of the vocabulary, and at first those of a given prefix."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from antiphon.data.batch import Batch
from antiphon.lattice.moves import IMPOSSIBLE
from antiphon.models.left_to_right import LeftToRight, copies_unknown
from antiphon.torch_free.vocab import END, PAD, START, UNKNOWN


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
