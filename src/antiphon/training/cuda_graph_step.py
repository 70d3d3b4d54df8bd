"""Training steps captured and replayed as CUDA graphs: one launch instead of one for every kernel of a step."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from antiphon.data.batch import Batch
from antiphon.device import join_side_streams
from antiphon.training.step import Step, StepResult, Update

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
