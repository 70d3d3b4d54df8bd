"""What source and target contribute to each cell of the lattice, and the state that each carries along."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from antiphon.nn.attention_cache import AttentionCache
from antiphon.nn.recurrent import LSTMState


class CellFactors(NamedTuple):
    """What one side of a cell contributes: token logits, and its part of the transition (``nn/transition.py``)."""

    logits: Float[Tensor, "... V"]
    transition: Float[Tensor, "... T"]


class SideState(NamedTuple):
    """One side after some tokens: its LSTM, and the vector of its features, if any."""

    hidden: Float[Tensor, "L N H"]
    cell: Float[Tensor, "L N H"]
    features: Float[Tensor, "N E"] | None

    @classmethod
    def initial(cls, lstm: LSTMState, features: Float[Tensor, "N E"] | None) -> "SideState":
        """The state before the first token, given that of the LSTM."""
        hidden, cell = lstm
        return cls(hidden, cell, features)

    def select(self, index: Int[Tensor, " M"]) -> "SideState":
        """The states of some sequences."""
        hidden, cell = (part.index_select(1, index) for part in self[:2])
        return SideState(hidden, cell, _select(self.features, index))

    def join(self, others: "SideState") -> "SideState":
        """The states of these sequences and of others."""
        hidden, cell = (torch.cat([part, other], 1) for part, other in ((self[0], others[0]), (self[1], others[1])))
        return SideState(hidden, cell, _join(self.features, others.features))

    def put(self, index: Int[Tensor, " M"] | slice, part: "SideState") -> "SideState":
        """The same with the states of some sequences replaced in place; their features stay as they are."""
        self.hidden[:, index], self.cell[:, index] = part.hidden, part.cell
        return self

    def replace(self, index: Int[Tensor, " M"] | slice, part: "SideState") -> "SideState":
        """The same with the states of some sequences and their features replaced: other sequences begin there."""
        _replace_features(self.features, index, part.features)
        return self.put(index, part)


class CausalState(NamedTuple):
    """A source after some tokens that a causal transformer has read, as ``SideState`` is for an LSTM."""

    cache: AttentionCache
    features: Float[Tensor, "N E"] | None

    @classmethod
    def initial(cls, cache: AttentionCache, features: Float[Tensor, "N E"] | None) -> "CausalState":
        """The state before the first token."""
        return cls(cache, features)

    def select(self, index: Int[Tensor, " M"]) -> "CausalState":
        """The states of some sequences."""
        return CausalState(self.cache.select(index), _select(self.features, index))

    def join(self, others: "CausalState") -> "CausalState":
        """The states of these sequences and of others."""
        return CausalState(self.cache.join(others.cache), _join(self.features, others.features))

    def put(self, index: Int[Tensor, " M"], part: "CausalState") -> "CausalState":
        """The same with the states of some sequences replaced; their features stay as they are."""
        return self._replace(cache=self.cache.put(index, part.cache))

    def replace(self, index: Int[Tensor, " M"], part: "CausalState") -> "CausalState":
        """The same with the states of some sequences and their features replaced: other sequences begin there."""
        _replace_features(self.features, index, part.features)
        return self.put(index, part)


def _select(features: Float[Tensor, "N E"] | None, index: Int[Tensor, " M"]) -> Float[Tensor, "M E"] | None:
    return None if features is None else features.index_select(0, index)


def _replace_features(
    features: Float[Tensor, "N E"] | None, index: Int[Tensor, " M"] | slice, part: Float[Tensor, "M E"] | None
) -> None:
    if features is not None and part is not None:
        features[index] = part


def _join(one: Float[Tensor, "N E"] | None, other: Float[Tensor, "M E"] | None) -> Float[Tensor, "NM E"] | None:
    return None if one is None or other is None else torch.cat([one, other])
