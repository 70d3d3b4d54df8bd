"""Outputs that begin with given tokens: a model that gives all other tokens no probability there."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from antiphon.lattice.moves import IMPOSSIBLE


class PrefixModel:
    """A model for one search whose outputs all begin with ``prefix``; log probabilities are those of the model.

    Everything but ``step`` is the model's own.
    """

    steps_differ = True
    """Steps that write the prefix differ from later ones, so none is captured as a CUDA graph."""

    def __init__(self, model: Any, prefix: Sequence[int]) -> None:
        self._model, self._remaining = model, list(prefix)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def step(self, memory: Any, state: Any, tokens: Tensor, sentence: Tensor) -> tuple[Tensor, Any]:
        """Log probabilities of the next token; until the prefix is written, only its next token is possible."""
        log_next, state = self._model.step(memory, state, tokens, sentence)
        if self._remaining:
            token = self._remaining.pop(0)
            log_token = log_next[:, token].clone()
            log_next = log_next.new_full(log_next.shape, IMPOSSIBLE)
            log_next[:, token] = log_token
        return log_next, state
