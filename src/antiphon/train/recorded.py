"""Training steps recorded for a GPU: the host asks for all kernels of a step at once."""

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from antiphon.data.batch import Batch
from antiphon.nn.side_by_side import join_lanes
from antiphon.train.step import Learned, Step

_MOST_RECORDINGS = 128
"""Shapes of batches recorded at most; others run step by step."""


class RecordedSteps:
    """Steps recorded as CUDA graphs, one for each shape of batch, and played back.

    Batches are padded to one of few shapes, the added pairs counting nothing. The first batch of a shape is trained
    on step by step, which also warms up its kernels; the second is recorded. All recordings share their memory.
    """

    def __init__(self, step: Step, batch_size: int) -> None:
        self.step, self.batch_size = step, batch_size
        self._seen: Counter[tuple[int, ...]] = Counter()
        self._recordings: dict[tuple[int, ...], _Recording] = {}
        self._stream, self._pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()

    def __call__(self, batch: Batch) -> Learned:
        """Learns from a batch that is still in the host's memory."""
        number, shape = len(batch.source), self._shape(batch)
        batch = batch.padded(*shape)
        share = torch.zeros(shape[0])
        share[:number] = 1 / number
        self._seen[shape] += 1
        if shape in self._recordings:
            return Learned(self._recordings[shape].play(batch, share), number)
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            total = self._learn(shape, batch.to("cuda"), share.to("cuda"))
        torch.cuda.current_stream().wait_stream(self._stream)
        return Learned(total, number)

    def _learn(self, shape: tuple[int, ...], batch: Batch, share: Tensor) -> Tensor:
        if self._seen[shape] == 1 or len(self._recordings) >= _MOST_RECORDINGS:
            return self.step.in_shares(batch, share)
        recording = self._recordings[shape] = self._record(batch, share)
        recording.graph.replay()
        return recording.total.clone()

    def _record(self, batch: Batch, share: Tensor) -> "_Recording":
        self.step.optimiser.zero_grad()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            try:
                total = self.step.in_shares(batch, share)
            finally:
                join_lanes()  # also where memory has run out
        return _Recording(graph, batch, share, total)

    def _shape(self, batch: Batch) -> tuple[int, int, int]:
        """Lengths in steps of four, from 64 on in steps of eight; numbers of pairs in quarters of a full batch."""
        pairs, (I, J) = len(batch.source), (tokens.shape[1] for tokens in (batch.source, batch.target))
        return _up(pairs, max(1, self.batch_size // 4)), _up_length(I), _up_length(J)


@dataclass(frozen=True)
class _Recording:
    """The kernels of a step, where they read their batch, and where they leave the sum of losses."""

    graph: torch.cuda.CUDAGraph
    batch: Batch
    share: Tensor
    total: Tensor

    def play(self, batch: Batch, share: Tensor) -> Tensor:
        for place, tensor in zip((*self.batch, self.share), (*batch, share), strict=True):
            place.copy_(tensor, non_blocking=True)
        self.graph.replay()
        return self.total.clone()


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def _up_length(length: int) -> int:
    return _up(length, 4 if length < 64 else 8)
