"""What source and target contribute to each cell of the lattice, and the state that each carries along."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from antiphon.nn.attention_cache import AttentionCache
from antiphon.nn.recurrent import LSTMState

_RUNS = 4
"""Run lengths that keys distinguish, including 0."""


class CellFactors(NamedTuple):
    """What one side of a cell contributes: token logits, and its part of the transition (``nn/transition.py``)."""

    logits: Float[Tensor, "... V"]
    transition: Float[Tensor, "... T"]


class SideState(NamedTuple):
    """One side after some tokens: its LSTM, the key of the last token, and the vector of its features, if any."""

    hidden: Float[Tensor, "L N H"]
    cell: Float[Tensor, "L N H"]
    key: Int[Tensor, " N"]
    features: Float[Tensor, "N E"] | None

    @classmethod
    def initial(cls, lstm: LSTMState, features: Float[Tensor, "N E"] | None) -> "SideState":
        """The state before the first token, given that of the LSTM."""
        hidden, cell = lstm
        return cls(hidden, cell, no_keys(hidden[0, :, 0]), features)

    def select(self, index: Int[Tensor, " M"]) -> "SideState":
        """The states of some sequences."""
        hidden, cell = (part.index_select(1, index) for part in self[:2])
        return SideState(hidden, cell, self.key.index_select(0, index), _select(self.features, index))

    def join(self, others: "SideState") -> "SideState":
        """The states of these sequences and of others."""
        hidden, cell = (torch.cat([part, other], 1) for part, other in ((self[0], others[0]), (self[1], others[1])))
        return SideState(hidden, cell, torch.cat([self.key, others.key]), _join(self.features, others.features))

    def put(self, index: Int[Tensor, " M"] | slice, part: "SideState") -> "SideState":
        """The same with the states of some sequences replaced in place; their features stay as they are."""
        self.hidden[:, index], self.cell[:, index], self.key[index] = part.hidden, part.cell, part.key
        return self

    def replace(self, index: Int[Tensor, " M"] | slice, part: "SideState") -> "SideState":
        """The same with the states of some sequences and their features replaced: other sequences begin there."""
        _replace_features(self.features, index, part.features)
        return self.put(index, part)


class CausalState(NamedTuple):
    """A source after some tokens that a causal transformer has read, as ``SideState`` is for an LSTM."""

    cache: AttentionCache
    key: Int[Tensor, " N"]
    features: Float[Tensor, "N E"] | None

    @classmethod
    def initial(cls, cache: AttentionCache, features: Float[Tensor, "N E"] | None) -> "CausalState":
        """The state before the first token."""
        return cls(cache, no_keys(cache.lengths), features)

    def select(self, index: Int[Tensor, " M"]) -> "CausalState":
        """The states of some sequences."""
        return CausalState(self.cache.select(index), self.key.index_select(0, index), _select(self.features, index))

    def join(self, others: "CausalState") -> "CausalState":
        """The states of these sequences and of others."""
        key, features = torch.cat([self.key, others.key]), _join(self.features, others.features)
        return CausalState(self.cache.join(others.cache), key, features)

    def put(self, index: Int[Tensor, " M"], part: "CausalState") -> "CausalState":
        """The same with the states of some sequences replaced; their features stay as they are."""
        self.key[index] = part.key
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


def no_keys(like: Int[Tensor, " N"] | Float[Tensor, " N"]) -> Int[Tensor, " N"]:
    """The key before the first token of each sequence; ``like`` has one number for each."""
    return torch.full_like(like, -_RUNS, dtype=torch.long)


def repeat_keys(tokens: Int[Tensor, "N T"], before: Int[Tensor, " N"]) -> Int[Tensor, "N T"]:
    """A key for each token that encodes the token and how often it was repeated up to here, at most three times.

    ``before`` are the keys of the preceding tokens. Keys of source and target are equal where the target has just
    written the source token: in ``irritar`` the second r counts as written only once two of them are.
    """
    if tokens.shape[1] == 1:  # a step of decoding: the same in fewer operations
        repeats = torch.where(tokens[:, 0] == before // _RUNS, before % _RUNS, 0)
        return tokens * _RUNS + (repeats + 1).clamp(max=_RUNS - 1)[:, None]
    previous = torch.cat([(before // _RUNS)[:, None], tokens[:, :-1]], 1)
    position = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    start = torch.where(tokens != previous, position, -_RUNS)
    goes_on = (tokens[:, 0] == previous[:, 0])[:, None] & (position == 0)
    start = torch.where(goes_on, -(before % _RUNS)[:, None], start).cummax(1).values
    return tokens * _RUNS + (position - start + 1).clamp(max=_RUNS - 1)
