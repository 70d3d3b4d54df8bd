"""Retries the gradients of a step in smaller micro-batches after an out-of-memory error.

The gradients of the parts add up to those of the batch before the optimiser moves, so it takes the same steps as with
more memory, and no pair is lost. Only gradients are retried: once weights may have moved, an error ends training at
its last checkpoint. Nothing of this costs anything until memory runs out for the first time.
"""

from collections.abc import Callable
from math import prod
from typing import Any, Protocol, Self, TypeVar

import torch
from torch import nn

from antiphon.exceptions import RunError
from antiphon.train.recorded import RecordedSteps
from antiphon.train.step import Learned, Step

Result = TypeVar("Result")


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

    def fitted(
        self, batch: Divisible, compute: Callable[[list[Any]], Result], make_room: Callable[[], bool] = lambda: False
    ) -> Result:
        """What is computed from a batch in as large parts as fit, which get smaller unless room can be made."""
        while True:
            parts = self.parts(batch)
            try:
                return compute(parts)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
            # Not before here: until its handler ends, the error keeps all that was computed alive.
            room_is_made = make_room()
            _free_gpu()
            if not room_is_made:
                self.halve(parts[0].sizes)

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
        update = self.bound.fitted(batch, self._prepare, self._start_anew)
        return update()

    def forget_recordings(self) -> bool:
        """Whether there were any; they take memory, and steps are the same without, only slower."""
        if self.recorded is None:
            return False
        self.recorded = None
        self.bound.say("out of memory: steps are no longer recorded, which is slower but takes less")
        return True

    def _prepare(self, parts: list[Any]) -> Callable[[], Learned]:
        """Computes gradients, while weights stay as they are; calling the result updates them."""
        if len(parts) == 1 and self.recorded is not None:
            return self.recorded.prepare(parts[0])
        learned = self.step.gradients([part.to(self._device) for part in parts])

        def update() -> Learned:
            self.step.update()
            return learned

        return update

    def _start_anew(self) -> bool:
        """Drops what the failed step has left, and recordings; whether there were any."""
        self.step.optimiser.zero_grad()
        # How many random numbers the failed step had drawn is anyone's guess.
        torch.manual_seed(torch.initial_seed() + _NEXT_SEED)
        return self.forget_recordings()


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
