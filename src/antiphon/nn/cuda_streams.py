"""Runs two independent parts of a model at the same time, on two CUDA streams."""

from collections.abc import Callable
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

First = TypeVar("First")
Second = TypeVar("Second")
SIDE_STREAMS = 2
"""Side streams; each one reserves memory of its own."""


def run_concurrently(
    first: Callable[[], First], second: Callable[[], Second], side_stream: int
) -> tuple[First, Second]:
    """Both results. While a CUDA graph is captured, the second part and its gradients run on a side stream.

    Parts that may run at the same time need different side streams.
    """
    if not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
        return first(), second()
    here, beside = torch.cuda.current_stream(), _stream(side_stream)
    beside.wait_stream(here)
    with torch.cuda.stream(beside):
        from_beside = second()
    from_here = first()
    here.wait_stream(beside)
    for leaf in tree_leaves(from_beside):
        if isinstance(leaf, Tensor):
            leaf.record_stream(here)
    return from_here, from_beside


def join_side_streams() -> None:
    """Makes the current stream wait for every side stream that is capturing; a capture cannot end without it."""
    for side_stream in range(SIDE_STREAMS):
        with torch.cuda.stream(_stream(side_stream)):
            is_capturing = torch.cuda.is_current_stream_capturing()
        if is_capturing:
            torch.cuda.current_stream().wait_stream(_stream(side_stream))


@cache
def _stream(side_stream: int) -> torch.cuda.Stream:
    return torch.cuda.Stream()
