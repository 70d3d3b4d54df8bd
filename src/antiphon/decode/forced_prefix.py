"""Outputs that begin with given tokens: a model that gives all other tokens no probability there."""

from collections.abc import Sequence
from typing import Any, cast

from torch import Tensor

from antiphon.data.batch import Batch
from antiphon.lattice.moves import IMPOSSIBLE


class PrefixModel:
    """A model whose outputs all begin with ``prefix``, in one search after another; log probabilities are the model's.

    Everything but ``start`` and ``step`` is the model's own.
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
