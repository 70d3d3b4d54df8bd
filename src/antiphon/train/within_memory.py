"""Training steps that survive a lack of memory.

A batch that does not fit is computed in parts. The gradients of the parts add up to those of the batch before the
optimiser moves, so it takes the same steps as with more memory, and no pair is lost. Nothing of this costs anything
until memory runs out for the first time.
"""

from collections.abc import Callable
from copy import copy
from math import prod
from typing import Any, Protocol, Self

import lightning as L
import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import Tensor

from antiphon.errors import RunError


class Divisible(Protocol):
    """A batch that can be cut."""

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Pairs, and the padded lengths of both sides."""
        ...

    def parts(self, pairs: int) -> list[Self]:
        """The same pairs in batches of at most so many."""
        ...


class WithinMemory(L.LightningModule):
    """A module whose batches are computed in parts of at most ``max_cells`` cells, once that is set."""

    train_loss: Any

    def __init__(self) -> None:
        super().__init__()
        self.max_cells: int | None = None
        self.say: Callable[[str], None] = print
        self.is_in_parts = False

    def on_train_batch_start(self, batch: Divisible, batch_idx: int) -> None:
        """Remembers the batch, which may have to be computed again."""
        self.batch = batch

    def optimizer_step(
        self,
        epoch: int,
        batch_idx: int,
        optimizer: torch.optim.Optimizer | LightningOptimizer,
        optimizer_closure: Callable[[], Any] | None = None,
    ) -> None:
        """Moves the weights by the gradients of a batch, however many parts those take."""
        assert optimizer_closure is not None
        whole = optimizer_closure
        optimizer.step(closure=lambda: self._gradients(whole, batch_idx))

    def _gradients(self, whole: Callable[[], Any], batch_idx: int) -> Any:
        """Leaves the gradients of the batch in the weights: of all of it at once, or of as large parts as fit."""
        loss_before = self.train_loss
        while True:
            self.train_loss = copy(loss_before)
            parts = self._parts()
            try:
                return whole() if len(parts) == 1 else self._add_up(parts, whole, batch_idx)
            except RuntimeError as error:
                if not is_out_of_memory(error) or self.trainer.world_size > 1:
                    raise
            # Not before here: until its handler ends, the error keeps all that was computed alive.
            self._give_way(parts[0].sizes)

    def _parts(self) -> list[Any]:
        pairs, rows, columns = self.batch.sizes
        at_once = pairs if self.max_cells is None else max(1, self.max_cells // (rows * columns))
        return [self.batch] if at_once >= pairs else self.batch.parts(at_once)

    def _add_up(self, parts: list[Any], whole: Callable[[], Any], batch_idx: int) -> Tensor:
        self.is_in_parts = True
        whole()  # Lightning wants its own closure called, which finds nothing to do but to clear the gradients
        self.is_in_parts = False
        strategy, pairs = self.trainer.strategy, sum(part.sizes[0] for part in parts)
        losses = []
        for part in parts:
            loss = strategy.training_step(part, batch_idx) * (part.sizes[0] / pairs)
            strategy.backward(loss, self.trainer.optimizers[0])
            losses.append(loss.detach())
        return torch.stack(losses).sum()

    def _give_way(self, sizes: tuple[int, int, int]) -> None:
        """Frees what the failed step has left, and halves what is computed at once from here on."""
        pairs, rows, columns = sizes
        self.trainer.optimizers[0].zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
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
        # How many random numbers the failed step had drawn is anyone's guess.
        torch.manual_seed(torch.initial_seed() + _NEXT_SEED)

    def get_extra_state(self) -> dict[str, int | None]:
        """What a checkpoint remembers, so that a resumed run computes the same parts."""
        return {"max_cells": self.max_cells}

    def set_extra_state(self, state: dict[str, int | None]) -> None:
        """Takes what a checkpoint remembers."""
        self.max_cells = state["max_cells"]


_NEXT_SEED = 500_009
"""Further from a seed than there are epochs, whose seeds follow each other."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory has run out: on a GPU, or on a CPU whose system refuses instead of killing."""
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator: can't allocate memory" in str(error)
