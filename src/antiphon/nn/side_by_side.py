"""Two parts of a model that do not need each other, computed at the same time."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

First = TypeVar("First")
Second = TypeVar("Second")


def side_by_side(first: Callable[[], First], second: Callable[[], Second]) -> tuple[First, Second]:
    """Both results. While a step is recorded for a GPU, the two go to streams of their own, as do their gradients."""
    if not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
        return first(), second()
    here, beside = torch.cuda.current_stream(), torch.cuda.Stream()
    beside.wait_stream(here)
    with torch.cuda.stream(beside):
        from_beside = second()
    from_here = first()
    here.wait_stream(beside)
    for leaf in tree_leaves(from_beside):
        if isinstance(leaf, Tensor):
            leaf.record_stream(here)
    return from_here, from_beside
