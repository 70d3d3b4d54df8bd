"""Captures a search step as a CUDA graph and replays it, which launches all kernels of a step at once."""

import threading
from collections.abc import Callable
from functools import cache
from typing import Generic, TypeVar

import torch

from antiphon.models.left_to_right import map_tensors

State = TypeVar("State")
Record = TypeVar("Record")
CAPTURING = threading.Lock()
"""Held while a step is captured; another thread that uses the GPU has to hold it, or the capture fails."""


class CapturedStep(Generic[State, Record]):
    """A step from a state to the next state and a record, captured as a CUDA graph and replayed.

    States and records are nested tuples of tensors and constants. Shapes are static, and a step has
    no device sync. The first step runs eagerly, which warms up its kernels; the second is captured. The state that
    comes back is overwritten by the next step; records are not.
    """

    def __init__(self, step: Callable[[State], tuple[State, Record]], device: torch.device) -> None:
        self.step, self.device = step, device
        self._steps_taken = 0

    def __call__(self, state: State) -> tuple[State, Record]:
        """The state after one more step, and its record."""
        stream, outer_stream = _stream(self.device), torch.cuda.current_stream(self.device)
        stream.wait_stream(outer_stream)
        with torch.cuda.stream(stream):
            after = self._take(state, stream)
        outer_stream.wait_stream(stream)
        return after

    def _take(self, state: State, stream: torch.cuda.Stream) -> tuple[State, Record]:
        self._steps_taken += 1
        if self._steps_taken == 1:
            return self.step(state)
        if self._steps_taken == 2:
            self._capture(state, stream)
        self._graph.replay()
        return self._state, _clone(self._record)

    def _capture(self, state: State, stream: torch.cuda.Stream) -> None:
        """A graph that reads the state from fixed addresses and leaves the next one there."""
        self._graph, self._state = torch.cuda.CUDAGraph(), _clone(state)
        with CAPTURING, torch.cuda.graph(self._graph, stream=stream):
            after, record = self.step(self._state)
            self._record = _clone(record)
            map_tensors(lambda _, buffer, value: buffer if value is buffer else buffer.copy_(value), self._state, after)


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """The one stream on which steps are captured."""
    return torch.cuda.Stream(device)


def _clone(tree: State) -> State:
    return map_tensors(lambda _, each: each.clone(), tree)
