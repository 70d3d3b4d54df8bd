"""Retries the gradients of a step in smaller micro-batches after an out-of-memory error.

The gradients of the micro-batches accumulate before the optimiser step, so the update is the same as with more memory.
Only gradients are retried: once weights may have moved, an error ends training at its last checkpoint. Nothing of this
costs anything until memory runs out for the first time.
"""

from collections.abc import Callable
from math import prod
from typing import Any, Protocol, Self, TypeVar

import torch

from antiphon.exceptions import RunError
from antiphon.terminal import Say
from antiphon.training.cuda_graph_step import CaptureError, CudaGraphStep
from antiphon.training.distributed import BatchShard
from antiphon.training.step import Step, StepResult, Update

Result = TypeVar("Result")
_NEXT_SEED = 500_009
"""Larger than the number of epochs, whose seeds are consecutive."""


class SplittableBatch(Protocol):
    """A batch that can be split."""

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Number of pairs, and the padded lengths of both sides."""
        ...

    def parts(self, pairs: int) -> list[Self]:
        """The same pairs in batches of at most ``pairs``, or of those that cannot be split."""
        ...

    def to(self, device: torch.device) -> Self:
        """The same batch on another device."""
        ...


class MicroBatchLimit:
    """The largest number of cells computed at once, lowered each time that memory runs out; None: no limit yet."""

    def __init__(self, say: Say, max_cells: int | None = None) -> None:
        self.say, self.max_cells = say, max_cells

    def split(self, batch: SplittableBatch) -> list[Any]:
        """The batch in micro-batches within the limit."""
        pairs, rows, columns = batch.sizes
        at_once = pairs if self.max_cells is None else max(1, self.max_cells // (rows * columns))
        return [batch] if at_once >= pairs else batch.parts(at_once)

    def retry(
        self,
        batch: SplittableBatch,
        compute: Callable[[list[Any]], Result],
        make_room: Callable[[], bool] = lambda: False,
    ) -> Result:
        """The result of ``compute`` on the micro-batches of a batch, halved until they fit.

        ``make_room`` may free memory first, and returns whether it did: then the same micro-batches are tried again.
        """
        while True:
            parts = self.split(batch)
            try:
                return compute(parts)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
            # Outside the handler: until it ends, the error keeps all that was computed alive.
            has_room = make_room()
            _free_gpu_memory()
            if not has_room:
                self._halve(max(parts, key=lambda part: prod(part.sizes)))

    def _halve(self, part: SplittableBatch) -> None:
        """Lowers the limit to half of what did not fit."""
        pairs, rows, columns = part.sizes
        if len(part.parts(1)) == 1:
            raise RunError(_too_large(pairs, rows, columns))
        self.max_cells = prod(part.sizes) // 2
        self.say(
            f"out of memory at {pairs} pairs x {rows} x {columns} = {prod(part.sizes):,} cells: "
            f"at most {self.max_cells:,} at once from here on"
        )


def _too_large(pairs: int, rows: int, columns: int) -> str:
    """What to do where a single pair does not fit, or the candidates of a single question."""
    found, remedy = (
        f"a single pair of {rows:,} source and {columns:,} target tokens does not fit",
        "data.max_cells, data.max_source_length or data.max_target_length",
    )
    if pairs > 1:
        found = f"the {pairs:,} candidates of a question, of up to {columns:,} tokens, do not fit at once"
        remedy = "train.listwise_weight, which is 0 where candidates need not be computed at once"
    return (
        f"out of memory: {found}; the last checkpoint is complete, free some memory and continue with --resume, or "
        f"start again with a lower {remedy}"
    )


class OutOfMemoryRetry:
    """A step that retries its gradients in smaller micro-batches, and gives up CUDA graphs before that."""

    def __init__(self, step: Step, limit: MicroBatchLimit, graph_step: CudaGraphStep | None = None) -> None:
        self.step, self.limit, self.graph_step = step, limit, graph_step
        self._device = next(step.model.parameters()).device

    def __call__(self, shard: BatchShard) -> StepResult:
        """Updates the weights with a batch in host memory, or with this process's shard of it."""
        update = self.limit.retry(shard.batch, lambda parts: self._prepare(parts, shard.weight), self._discard_attempt)
        return StepResult(update(), shard.pairs)

    def release_graphs(self) -> bool:
        """Frees the memory of captured CUDA graphs, and returns whether there were any; steps without are slower."""
        return self._stop_capturing("out of memory: ", " but takes less")

    def _prepare(self, parts: list[Any], weight: float) -> Update:
        """Computes gradients while the weights stay as they are; calling the result updates them."""
        if len(parts) == 1 and self.graph_step is not None:
            try:
                return self.graph_step.prepare(parts[0])
            except CaptureError as error:
                reason = f"{error}: "
            self._discard_gradients_and_reseed()
            self._stop_capturing(reason)
        return self.step.prepare([part.to(self._device) for part in parts], weight)

    def _stop_capturing(self, reason: str, remark: str = "") -> bool:
        """Drops all CUDA graphs and says so; whether there were any."""
        if self.graph_step is None:
            return False
        self.graph_step = None
        self.limit.say(f"{reason}steps are no longer captured as CUDA graphs, which is slower{remark}")
        return True

    def _discard_attempt(self) -> bool:
        """Drops the gradients of a failed attempt and all CUDA graphs; whether there were graphs."""
        self._discard_gradients_and_reseed()
        return self.release_graphs()

    def _discard_gradients_and_reseed(self) -> None:
        """Discards gradients and reseeds, since it is unknown how many random numbers a failed attempt has drawn."""
        self.step.optimiser.zero_grad()
        torch.manual_seed(torch.initial_seed() + _NEXT_SEED)


def _free_gpu_memory() -> None:
    """Returns unused GPU memory; cuBLAS workspaces may lie between CUDA graphs and keep their memory in use."""
    if torch.cuda.is_available():
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory has run out: on a GPU, or on a CPU whose system refuses instead of killing."""
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator: can't allocate memory" in str(error)
