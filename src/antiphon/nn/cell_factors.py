"""What source and target contribute to each cell of the lattice, and the state that each carries along."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

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
    def initial(cls, zeros: Float[Tensor, "L N H"], features: Float[Tensor, "N E"] | None) -> "SideState":
        """The state before the first token."""
        nothing = torch.full(zeros.shape[1:2], -_RUNS, dtype=torch.long, device=zeros.device)
        return cls(zeros, zeros.clone(), nothing, features)

    def select(self, index: Int[Tensor, " M"]) -> "SideState":
        """The states of some sequences."""
        features = None if self.features is None else self.features.index_select(0, index)
        hidden, cell = (part.index_select(1, index) for part in self[:2])
        return SideState(hidden, cell, self.key.index_select(0, index), features)

    def join(self, others: "SideState") -> "SideState":
        """The states of these sequences and of others."""
        hidden, cell = (torch.cat([part, other], 1) for part, other in ((self[0], others[0]), (self[1], others[1])))
        features = None
        if self.features is not None and others.features is not None:
            features = torch.cat([self.features, others.features])
        return SideState(hidden, cell, torch.cat([self.key, others.key]), features)

    def put(self, index: Int[Tensor, " M"], part: "SideState") -> None:
        """Replaces the states of some sequences, whose features stay as they are."""
        self.hidden[:, index], self.cell[:, index], self.key[index] = part.hidden, part.cell, part.key

    def replace(self, index: Int[Tensor, " M"], part: "SideState") -> None:
        """Replaces the states of some sequences and their features: other sequences begin there."""
        self.put(index, part)
        if self.features is not None and part.features is not None:
            self.features[index] = part.features


def run_keys(tokens: Int[Tensor, "N T"], before: Int[Tensor, " N"]) -> Int[Tensor, "N T"]:
    """A key for each token that encodes the token and how often it was repeated up to here, at most three times.

    ``before`` are the keys of the preceding tokens. Keys of source and target are equal where the target has just
    written the source token: in ``irritar`` the second r counts as written only once two of them are.
    """
    previous = torch.cat([(before // _RUNS)[:, None], tokens[:, :-1]], 1)
    position = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    start = torch.where(tokens != previous, position, -_RUNS)
    goes_on = (tokens[:, 0] == previous[:, 0])[:, None] & (position == 0)
    start = torch.where(goes_on, -(before % _RUNS)[:, None], start).cummax(1).values
    return tokens * _RUNS + (position - start + 1).clamp(max=_RUNS - 1)
