"""Two parts of a model that do not need each other, computed at the same time."""

from collections.abc import Callable
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

First = TypeVar("First")
Second = TypeVar("Second")
SIDE_STREAMS = 2
"""How many parts can run beside the first one; every stream more would cost memory that is its own."""


def run_concurrently(
    first: Callable[[], First], second: Callable[[], Second], side_stream: int
) -> tuple[First, Second]:
    """Both results. While a step is recorded for a GPU, the second goes to a lane of its own, as do its gradients.

    Parts that may run at the same time need different lanes.
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
    """Makes the current stream wait for every lane that is being recorded; without it, no recording can end."""
    for side_stream in range(SIDE_STREAMS):
        with torch.cuda.stream(_stream(side_stream)):
            is_recorded = torch.cuda.is_current_stream_capturing()
        if is_recorded:
            torch.cuda.current_stream().wait_stream(_stream(side_stream))


@cache
def _stream(side_stream: int) -> torch.cuda.Stream:
    return torch.cuda.Stream()
