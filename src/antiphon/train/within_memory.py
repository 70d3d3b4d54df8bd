"""Training steps that survive a lack of memory.

A batch that does not fit is computed in parts. The gradients of the parts add up to those of the batch before the
optimiser moves, so it takes the same steps as with more memory, and no pair is lost. Nothing of this costs anything
until memory runs out for the first time.
"""

from collections.abc import Callable
from math import prod
from typing import Any, Protocol, Self

import torch
from torch import nn

from antiphon.errors import RunError
from antiphon.train.recorded import RecordedSteps
from antiphon.train.step import Learned, Step


class Divisible(Protocol):
    """A batch that can be cut."""

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Pairs, and the padded lengths of both sides."""
        ...

    def parts(self, pairs: int) -> list[Self]:
        """The same pairs in batches of at most so many."""
        ...

    def to(self, device: torch.device) -> Self:
        """The same batch on another device."""
        ...


class MemoryBound(nn.Module):
    """How many cells may be computed at once, if memory has run out before; a module, so that checkpoints know it."""

    def __init__(self) -> None:
        super().__init__()
        self.max_cells: int | None = None
        self.say: Callable[[str], None] = print

    def parts(self, batch: Divisible) -> list[Any]:
        """The batch in as large parts as fit."""
        pairs, rows, columns = batch.sizes
        at_once = pairs if self.max_cells is None else max(1, self.max_cells // (rows * columns))
        return [batch] if at_once >= pairs else batch.parts(at_once)

    def halve(self, sizes: tuple[int, int, int]) -> None:
        """Allows half of what did not fit from here on, and says so."""
        pairs, rows, columns = sizes
        if pairs == 1:
            raise RunError(
                f"out of memory: a single pair of {rows:,} source and {columns:,} target tokens does not fit; the last "
                "checkpoint is whole, make room and go on with --resume, or begin anew with a lower data.max_cells, "
                "data.max_source_length or data.max_target_length"
            )
        self.max_cells = prod(sizes) // 2
        self.say(
            f"out of memory at {pairs} pairs x {rows} x {columns} = {prod(sizes):,} cells: "
            f"at most {self.max_cells:,} at once from here on"
        )

    def get_extra_state(self) -> dict[str, int | None]:
        """What a checkpoint remembers, so that a resumed run computes the same parts."""
        return {"max_cells": self.max_cells}

    def set_extra_state(self, state: dict[str, int | None]) -> None:
        """Takes what a checkpoint remembers."""
        self.max_cells = state["max_cells"]


class WithinMemory:
    """A step on batches that may have to be computed in parts; recorded, until memory runs out."""

    def __init__(self, step: Step, bound: MemoryBound, *, recorded: RecordedSteps | None = None) -> None:
        self.step, self.bound, self.recorded = step, bound, recorded
        self.takes_from_host = recorded is not None  # also once recording has ended
        self._device = next(step.model.parameters()).device

    def __call__(self, batch: Divisible) -> Learned:
        """Learns from a batch, however many parts that takes."""
        while True:
            parts = self.bound.parts(batch)
            try:
                return self._learn(parts)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
            # Not before here: until its handler ends, the error keeps all that was computed alive.
            self._give_way(parts[0].sizes)

    def _learn(self, parts: list[Any]) -> Learned:
        if len(parts) == 1 and self.recorded is not None:
            return self.recorded(parts[0])
        return self.step.in_parts([part.to(self._device) for part in parts])

    def _give_way(self, sizes: tuple[int, int, int]) -> None:
        """Frees what the failed step has left and does without recordings, or else with half as much at once."""
        self.step.optimiser.zero_grad()
        if self.recorded is None:
            self.bound.halve(sizes)
        else:
            self.bound.say("out of memory: steps are no longer recorded, which is slower but takes less")
        self.recorded = None
        _free_gpu()
        # How many random numbers the failed step had drawn is anyone's guess.
        torch.manual_seed(torch.initial_seed() + _NEXT_SEED)


def _free_gpu() -> None:
    """Gives back what is not in use; work space of matrix products may lie among recordings and keep their memory."""
    if torch.cuda.is_available():
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()


_NEXT_SEED = 500_009
"""Further from a seed than there are epochs, whose seeds follow each other."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory has run out: on a GPU, or on a CPU whose system refuses instead of killing."""
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator: can't allocate memory" in str(error)
