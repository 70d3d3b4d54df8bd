"""One training step: losses, gradients, clipping, optimiser step and EMA.

``CudaGraphStep`` captures the same step as a CUDA graph and replays it: one launch instead of one for every kernel.
``OutOfMemoryRetry`` retries its gradients in smaller micro-batches after an out-of-memory error. They accumulate before
the optimiser step, so the update is the same as with more memory. Only gradients are retried: once weights may have
moved, an error ends training at its last checkpoint.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from antiphon.data.batch import Batch
from antiphon.device import join_side_streams
from antiphon.exceptions import RunError, is_out_of_memory
from antiphon.terminal import Say
from antiphon.training.distributed import BatchShard, average_gradients
from antiphon.training.optimisation import EMA

LossFunction = Callable[[Any, Any], Tensor]
"""The loss of each pair, given a model and a batch."""
Update = Callable[[], Tensor]
"""Updates the weights, once, with gradients that are already computed; returns the sum of the losses."""


class StepResult(NamedTuple):
    """The sum of the losses of a step, still on its device, and the number of pairs."""

    loss: Tensor
    pairs: int


def negative_log_likelihood(model: Any, batch: Any) -> Tensor:
    """``-log p(y | x)`` of each pair."""
    loss: Tensor = -model(batch)
    return loss


def smoothed_loss(label_smoothing: float) -> LossFunction:
    """``-log p(y | x)`` of each pair, with label smoothing."""
    return lambda model, batch: -model.log_prob(batch, label_smoothing)


@dataclass(frozen=True)
class Step:
    """One update of a model's weights, and of their EMA."""

    model: nn.Module
    loss: LossFunction
    optimiser: torch.optim.Optimizer
    clip: float
    ema: EMA | None = None
    bfloat16: bool = False
    group: ProcessGroup | None = None

    def __call__(self, batch: Any) -> StepResult:
        """Updates the weights with the mean loss of a batch."""
        pairs = batch.sizes[0]
        return StepResult(self.prepare([batch], 1 / pairs)(), pairs)

    def prepare(self, parts: Sequence[Any], weight: Tensor | float) -> Update:
        """Computes gradients while the weights stay as they are; calling the result updates the weights."""
        loss = self.gradients(parts, weight)

        def update() -> Tensor:
            self.update()
            return loss

        return update

    def gradients(self, parts: Sequence[Any], weight: Tensor | float) -> Tensor:
        """Computes the gradients of a batch given in micro-batches, whose gradients are accumulated.

        Each pair's loss is multiplied by ``weight``. Returns the plain sum of the losses with a weight other than 0.
        """
        self.optimiser.zero_grad()
        return torch.stack([self._backward(part, weight) for part in parts]).sum()

    def update(self) -> None:
        """Clips the gradients, updates the weights once, and then the EMA.

        Never retried: after an error in here the weights may have moved already.
        """
        average_gradients(self.model.parameters(), self.group)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimiser.step()
        if self.ema is not None:
            self.ema.update_parameters(self.model)

    def _backward(self, batch: Any, weight: Tensor | float) -> Tensor:
        losses = self.losses(batch)
        weights = weight if isinstance(weight, Tensor) else losses.new_full((), weight)
        counted = losses.where(weights != 0, 0.0)  # an infinite loss times 0 would be NaN
        (counted * weights).sum().backward()
        return counted.detach().sum()

    def losses(self, batch: Any) -> Tensor:
        """The loss of each pair of a batch."""
        device = batch[0].device.type
        with torch.autocast(device, torch.bfloat16, enabled=self.bfloat16):
            return self.loss(self.model, batch)


_MAX_GRAPHS = 128
"""Batch shapes captured at most; steps on other shapes run eagerly."""


class CaptureError(RuntimeError):
    """A computation does something that CUDA cannot capture."""


class CudaGraphs:
    """CUDA graphs that share one pool of memory."""

    def __init__(self) -> None:
        self.device = torch.device("cuda")
        self._stream, self._pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()

    @contextmanager
    def capture_stream(self) -> Iterator[None]:
        """Inside, work runs on the stream used for capture; later work waits for it."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            yield
        torch.cuda.current_stream().wait_stream(self._stream)

    def capture(self, compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Captures a computation without running it; each call of the result runs it once; may raise CaptureError."""
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                try:
                    result = compute()
                finally:
                    join_side_streams()  # also where memory has run out
        except RuntimeError as error:
            if "captur" not in str(error):
                raise
            _renew_random_state()
            raise CaptureError(str(error).partition("\n")[0]) from None

        def replay() -> Tensor:
            graph.replay()
            return result.clone()

        return replay


class CudaGraphStep:
    """Steps captured as CUDA graphs, one for each batch shape, and replayed.

    Batches are padded to one of few shapes, and added pairs have weight 0. The first batch of a shape runs eagerly,
    which also warms up its kernels; the second is captured. All graphs share their memory.
    """

    def __init__(self, step: Step, batch_size: int, graphs: CudaGraphs | None = None) -> None:
        self.step, self.batch_size = step, batch_size
        self._graphs = graphs or CudaGraphs()
        self._seen: Counter[tuple[int, ...]] = Counter()
        self._captured: dict[tuple[int, ...], _CapturedStep] = {}

    def __call__(self, batch: Batch) -> StepResult:
        """Updates the weights with the mean loss of a batch in host memory."""
        return StepResult(self.prepare(batch)(), len(batch.source))

    def prepare(self, batch: Batch) -> Update:
        """Does all that may run out of memory while the weights stay as they are; calling the result updates them."""
        pairs, shape = len(batch.source), self._shape(batch)
        batch = batch.padded(*shape)
        weights = torch.zeros(shape[0])
        weights[:pairs] = 1 / pairs
        self._seen[shape] += 1
        if shape in self._captured:
            captured = self._captured[shape]
            return lambda: captured.replay_on(batch, weights)
        with self._graphs.capture_stream():
            update = self._prepare_new(shape, batch.to(self._graphs.device), weights.to(self._graphs.device))
        return lambda: self._run_on_capture_stream(update)

    def _prepare_new(self, shape: tuple[int, ...], batch: Batch, weights: Tensor) -> Update:
        if self._seen[shape] == 1 or len(self._captured) >= _MAX_GRAPHS:
            return self.step.prepare([batch], weights)
        self.step.optimiser.zero_grad()
        replay = self._graphs.capture(lambda: self.step.prepare([batch], weights)())
        self._captured[shape] = _CapturedStep(replay, batch, weights)
        return replay

    def _run_on_capture_stream(self, update: Update) -> Tensor:
        with self._graphs.capture_stream():
            return update()

    def _shape(self, batch: Batch) -> tuple[int, int, int]:
        """Lengths in steps of four, from 64 on in steps of eight; numbers of pairs in quarters of a full batch."""
        pairs, (I, J) = len(batch.source), (tokens.shape[1] for tokens in (batch.source, batch.target))
        return _round_up(pairs, max(1, self.batch_size // 4)), _round_up_length(I), _round_up_length(J)


class _CapturedStep(NamedTuple):
    """A captured step, and the tensors that it reads its batch from."""

    replay: Update
    batch: Batch
    weights: Tensor

    def replay_on(self, batch: Batch, weights: Tensor) -> Tensor:
        for buffer, tensor in zip((*self.batch, self.weights), (*batch, weights), strict=True):
            buffer.copy_(tensor, non_blocking=True)
        return self.replay()


def _renew_random_state() -> None:
    """Gives the GPU's random numbers a new state: that of a capture which failed stays closed to other work."""
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    generator.graphsafe_set_state(generator.clone_state())


def _round_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def _round_up_length(length: int) -> int:
    return _round_up(length, 4 if length < 64 else 8)


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
