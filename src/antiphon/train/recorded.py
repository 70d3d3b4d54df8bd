"""Training steps replayed as CUDA graphs: one launch instead of one for every kernel of a step."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from antiphon.data.batch import Batch
from antiphon.nn.cuda_streams import join_side_streams
from antiphon.train.step import Learned, Step

_MOST_RECORDINGS = 128
"""Shapes of batches recorded at most; others run step by step."""


class Graphs(Protocol):
    """What captures a computation, so that it can be replayed as a whole."""

    device: torch.device

    def beside(self) -> AbstractContextManager[None]:
        """Inside, work goes to the stream that captures; what follows waits for it."""
        ...

    def capture(self, compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Captures a computation without running it; each call of what is returned runs it once."""
        ...


class CudaGraphs:
    """CUDA graphs that share one pool of memory."""

    def __init__(self) -> None:
        self.device = torch.device("cuda")
        self._stream, self._pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Inside, work goes to the stream that captures."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            yield
        torch.cuda.current_stream().wait_stream(self._stream)

    def capture(self, compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Captures a computation as a graph; each call of what is returned replays it once."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            try:
                result = compute()
            finally:
                join_side_streams()  # also where memory has run out

        def replay() -> Tensor:
            graph.replay()
            return result.clone()

        return replay


class RecordedSteps:
    """Steps captured as CUDA graphs, one for each shape of batch, and replayed.

    Batches are padded to one of few shapes, the added pairs counting nothing. The first batch of a shape is trained
    on eagerly, which also warms up its kernels; the second is captured. All graphs share their memory.
    """

    def __init__(self, step: Step, batch_size: int, graphs: Graphs | None = None) -> None:
        self.step, self.batch_size = step, batch_size
        self._graphs = graphs or CudaGraphs()
        self._seen: Counter[tuple[int, ...]] = Counter()
        self._recordings: dict[tuple[int, ...], _Recording] = {}

    def __call__(self, batch: Batch) -> Learned:
        """Learns from a batch that is still in host memory."""
        return self.prepare(batch)()

    def prepare(self, batch: Batch) -> Callable[[], Learned]:
        """Does all that may run out of memory, while weights stay as they are; calling the result updates them."""
        number, shape = len(batch.source), self._shape(batch)
        batch = batch.padded(*shape)
        share = torch.zeros(shape[0])
        share[:number] = 1 / number
        self._seen[shape] += 1
        if shape in self._recordings:
            recording = self._recordings[shape]
            return lambda: Learned(recording.play(batch, share), number)
        with self._graphs.beside():
            update = self._prepare_new(shape, batch.to(self._graphs.device), share.to(self._graphs.device))
        return lambda: Learned(self._update_beside(update), number)

    def _prepare_new(self, shape: tuple[int, ...], batch: Batch, share: Tensor) -> Callable[[], Tensor]:
        if self._seen[shape] > 1 and len(self._recordings) < _MOST_RECORDINGS:
            self.step.optimiser.zero_grad()
            replay = self._graphs.capture(lambda: self.step.in_shares(batch, share))
            self._recordings[shape] = _Recording(replay, batch, share)
            return replay
        total = self.step.weighted_gradients(batch, share)

        def update() -> Tensor:
            self.step.update()
            return total

        return update

    def _update_beside(self, update: Callable[[], Tensor]) -> Tensor:
        with self._graphs.beside():
            return update()

    def _shape(self, batch: Batch) -> tuple[int, int, int]:
        """Lengths in steps of four, from 64 on in steps of eight; numbers of pairs in quarters of a full batch."""
        pairs, (I, J) = len(batch.source), (tokens.shape[1] for tokens in (batch.source, batch.target))
        return _up(pairs, max(1, self.batch_size // 4)), _up_length(I), _up_length(J)


class _Recording(NamedTuple):
    """A captured step, and where it reads its batch."""

    replay: Callable[[], Tensor]
    batch: Batch
    share: Tensor

    def play(self, batch: Batch, share: Tensor) -> Tensor:
        for place, tensor in zip((*self.batch, self.share), (*batch, share), strict=True):
            place.copy_(tensor, non_blocking=True)
        return self.replay()


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def _up_length(length: int) -> int:
    return _up(length, 4 if length < 64 else 8)
