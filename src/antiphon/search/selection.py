"""How much of a column is worked on: what is used, or all there is."""

from typing import Protocol

import torch
from jaxtyping import Bool, Int
from torch import Tensor


class Selection(Protocol):
    """Which places of tensors are worked on, given where something is; what it leaves out is never looked at."""

    def places(self, used: Bool[Tensor, " n"]) -> Int[Tensor, " N"]:
        """Places to work on."""
        ...

    def rows(self, used: Bool[Tensor, "B R K"]) -> tuple[int, int]:
        """The first row to work on, and the one to stop before."""
        ...

    def slots(self, used: Bool[Tensor, "B K"]) -> int:
        """How many slots, from the first on, are worked on in every sentence."""
        ...


class Used:
    """Only what is used: little work, but the host must wait to hear how much that is."""

    def places(self, used: Bool[Tensor, " n"]) -> Int[Tensor, " N"]:
        """The places that are used."""
        return used.nonzero()[:, 0]

    def rows(self, used: Bool[Tensor, "B R K"]) -> tuple[int, int]:
        """The band of rows that are used in any sentence; there is always one."""
        rows: list[int] = used.any(2).any(0).nonzero()[:, 0].tolist()
        return (rows[0], rows[-1] + 1) if rows else (0, 1)

    def slots(self, used: Bool[Tensor, "B K"]) -> int:
        """As many slots as the sentence with the most has; there is always one."""
        return max(1, int(used.sum(1).amax()))


class Everything:
    """All there is: shapes never change and the host waits for nothing, so that the work can be recorded."""

    def places(self, used: Bool[Tensor, " n"]) -> Int[Tensor, " N"]:
        """Every place."""
        return torch.arange(len(used), device=used.device)

    def rows(self, used: Bool[Tensor, "B R K"]) -> tuple[int, int]:
        """Every row."""
        return 0, used.shape[1]

    def slots(self, used: Bool[Tensor, "B K"]) -> int:
        """Every slot."""
        return used.shape[1]
