"""Several processes that train one model together, as ``torchrun`` starts them.

All of them compute; the first one alone reads the data, writes the run and speaks. A process that was started alone is
the first and only one: for it nothing here sends or waits.
"""

import atexit
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TypeVar, cast

import torch
from torch import distributed

T = TypeVar("T")

_PATIENCE = timedelta(days=7)
"""How long processes wait for the first one, which may have a large corpus to encode."""


class EndedByFirst(Exception):  # noqa: N818  (the first process says what went wrong)
    """The first process could not go on, so the others have nothing more to do."""


@contextmanager
def joined() -> Iterator[None]:
    """Inside, all processes that ``torchrun`` has started know each other."""
    if not distributed.is_torchelastic_launched() or int(os.environ["WORLD_SIZE"]) == 1:
        yield
        return
    distributed.init_process_group("gloo", timeout=_PATIENCE)
    atexit.register(distributed.destroy_process_group)
    try:
        yield
    except EndedByFirst:
        # torchrun ends all processes as soon as one has ended: let that be the first, which has to say why.
        with suppress(RuntimeError):
            distributed.barrier()
        raise SystemExit(2) from None


def size() -> int:
    """How many processes train together."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def rank() -> int:
    """The number of this process among them, from 0."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def is_first() -> bool:
    """Whether this process is the one that reads, writes and speaks."""
    return rank() == 0


def size_on_this_machine() -> int:
    """How many of the processes share this machine."""
    return int(os.environ["LOCAL_WORLD_SIZE"]) if size() > 1 else 1


def first_alone(work: Callable[[], T]) -> T | None:
    """What ``work`` gives in the first process; the others wait for its end, and end if it fails."""
    result: T | None = None
    if is_first():
        try:
            result = work()
        except Exception:
            agreed(False)
            raise
    if not agreed(True):
        raise EndedByFirst
    return result


def by_first(work: Callable[[], T]) -> T:
    """What ``work`` gives in the first process, told to all of them."""
    return cast(T, agreed(first_alone(work)))


def agreed(value: T) -> T:
    """The value that the first process has, in all of them."""
    if size() == 1:
        return value
    values = [value]
    distributed.broadcast_object_list(values)
    return values[0]


def added_up(*numbers: float) -> list[float]:
    """The sum of each number over all processes."""
    if size() == 1:
        return list(numbers)
    total = torch.tensor(numbers, dtype=torch.float64)
    distributed.all_reduce(total)
    return total.tolist()


def gathered(items: Sequence[T]) -> list[T]:
    """The items of all processes."""
    if size() == 1:
        return list(items)
    parts: list[Sequence[T]] = [()] * size()
    distributed.all_gather_object(parts, items)
    return [item for part in parts for item in part]
