"""Several processes that train one model, as ``torchrun`` starts them.

All of them read the data and compute. Rank 0 alone makes vocabularies, writes the run and prints. In a process that was
started alone, the world size is 1 and nothing here communicates or waits.
"""

import atexit
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed, nn
from torch.distributed import ProcessGroup
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from antiphon.exceptions import AntiphonError

T = TypeVar("T")

_TIMEOUT = timedelta(days=7)
"""How long processes wait for rank 0, which may have a large corpus to encode."""
_ANSWER_SECONDS = 0.02
"""Seconds between answers of rank 0 to processes that ask for the prefix."""


class LostProcessError(AntiphonError):
    """Another process of the training has ended."""


class RankZeroFailedError(Exception):
    """Rank 0 has failed, with this message; the other processes only have to end."""


@contextmanager
def process_group() -> Iterator[None]:
    """Inside, all processes that ``torchrun`` has started can communicate; for a command, which ends afterwards."""
    join_process_group()
    try:
        yield
    except RankZeroFailedError:
        # torchrun ends all processes as soon as one has ended: let that be rank 0, which has to report why.
        with suppress(RuntimeError):
            distributed.barrier()
        raise SystemExit(2) from None


def join_process_group() -> None:
    """Lets all processes that ``torchrun`` has started communicate until they end; one group for all trainings."""
    is_alone = not distributed.is_torchelastic_launched() or int(os.environ["WORLD_SIZE"]) == 1
    if is_alone or distributed.is_initialized():
        return
    # Its functions have the default group as default argument. Imported later, as PyTorch does by itself, they would
    # keep the group alive, whose threads then abort the process if they are still at work when Python ends.
    import torch.distributed.nn.functional  # noqa: F401

    store, own_rank, size = next(rendezvous("env://", timeout=_TIMEOUT))
    store = PrefixStore(_agree_on_prefix(store, own_rank, size), store)
    distributed.init_process_group("gloo", store=store, rank=own_rank, world_size=size, timeout=_TIMEOUT)
    atexit.register(_leave_process_group)


def _agree_on_prefix(store: Store, own_rank: int, size: int) -> str:
    """A prefix of keys that all processes of this start share, and no earlier start.

    The store of ``torchrun`` outlives its processes. Without a prefix, processes that are started again would read the
    addresses of those before them and wait for them. The number of restarts cannot be the prefix, since machines count
    it differently. So every process asks under a name of its own, and rank 0 answers until all have its prefix.
    """
    name = secrets.token_hex(8)
    if own_rank:
        store.set(f"antiphon/asks/{own_rank}", name)
        prefix = str(store.get(f"antiphon/answer/{name}").decode())
        store.set(f"antiphon/has/{prefix}/{own_rank}", "")
        return prefix
    others = set(range(1, size))
    while others:
        for other in others:  # which may still be the name of an earlier process
            store.set(f"antiphon/answer/{store.get(f'antiphon/asks/{other}').decode()}", name)
        time.sleep(_ANSWER_SECONDS)
        others = {other for other in others if not store.check([f"antiphon/has/{name}/{other}"])}
    return name


def _leave_process_group() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()


@contextmanager
def _communication() -> Iterator[None]:
    """Inside, processes communicate; that another one is gone is one sentence."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise LostProcessError(
            f"torchrun: rank {rank()} has lost the connection to another process, expected {world_size()} processes; "
            "the last checkpoint is complete, continue with --resume, or use torchrun --max-restarts and --resume"
        ) from error


def world_size() -> int:
    """The number of processes."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def rank() -> int:
    """The rank of this process."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def is_rank_zero() -> bool:
    """Whether this process is the one that reads, writes and prints."""
    return rank() == 0


def local_world_size() -> int:
    """The number of processes on this machine."""
    return int(os.environ["LOCAL_WORLD_SIZE"]) if world_size() > 1 else 1


def local_device(name: str) -> torch.device:
    """The device of this process: of several GPUs, the one of its local rank, which becomes the current one."""
    if name != "cuda" or world_size() == 1:
        return torch.device(name)
    device = torch.device(name, int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def gradient_group(device: torch.device) -> ProcessGroup | None:
    """The process group for tensors on a device: nccl for GPUs; else the default one, gloo."""
    if world_size() == 1 or device.type != "cuda":
        return None
    return cast(ProcessGroup, distributed.new_group(backend="nccl"))


def on_rank_zero(work: Callable[[], T]) -> T | None:
    """The result of ``work`` on rank 0, None on the others, which wait for it and end if it fails."""
    result: T | None = None
    if is_rank_zero():
        try:
            result = work()
        except Exception as error:
            broadcast(str(error) or type(error).__name__)
            raise
    failure = broadcast("")
    if failure:
        raise RankZeroFailedError(failure)
    return result


def from_rank_zero(work: Callable[[], T]) -> T:
    """The result of ``work`` on rank 0, in all processes."""
    return cast(T, broadcast(on_rank_zero(work)))


def broadcast(value: T) -> T:
    """The value that rank 0 has, in all processes."""
    if world_size() == 1:
        return value
    values = [value]
    with _communication():
        distributed.broadcast_object_list(values)
    return values[0]


def all_reduce_sum(*numbers: float) -> list[float]:
    """The sum of each number over all processes."""
    if world_size() == 1:
        return list(numbers)
    total = torch.tensor(numbers, dtype=torch.float64)
    with _communication():
        distributed.all_reduce(total)
    return total.tolist()


def all_gather(items: Sequence[T]) -> list[T]:
    """The items of all processes, in the order of their ranks."""
    if world_size() == 1:
        return list(items)
    parts: list[Sequence[T]] = [()] * world_size()
    with _communication():
        distributed.all_gather_object(parts, items)
    return [item for part in parts for item in part]


def broadcast_weights(model: nn.Module, group: ProcessGroup | None) -> None:
    """Gives all processes the weights of rank 0."""
    if world_size() == 1:
        return
    with _communication():
        for parameter in model.parameters():
            distributed.broadcast(parameter.data, 0, group=group)


def average_gradients(parameters: Iterable[nn.Parameter], group: ProcessGroup | None) -> None:
    """Replaces every gradient by its mean over all processes, in one all-reduce.

    A gradient that only other processes have counts as 0 here; one that no process has stays None, as in one process.
    """
    if world_size() == 1:
        return
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in trained]
    exists = gradients[0].new_tensor([each.grad is not None for each in trained])
    flat = torch.cat([*(gradient.flatten() for gradient in gradients), exists]) / world_size()
    with _communication():
        distributed.all_reduce(flat, group=group)
    *means, exists = flat.split([*(gradient.numel() for gradient in gradients), len(trained)])
    for index, (parameter, gradient, mean) in enumerate(zip(trained, gradients, means, strict=True)):
        gradient.copy_(mean.view_as(gradient))
        if parameter.grad is None and exists[index] > 0:
            parameter.grad = gradient


@dataclass(frozen=True)
class BatchShard:
    """The part of a batch that one process computes: ``pairs`` of the ``total`` pairs of the batch.

    A batch of fewer pairs than processes leaves some processes without a pair. They compute on a pair of another
    process with weight 0, so that every process takes part in every step.
    """

    batch: Any
    pairs: int
    total: int

    @property
    def weight(self) -> float:
        """The weight of each pair's loss, such that the mean over processes is the mean over all pairs."""
        return world_size() / self.total if self.pairs else 0.0


def shard_indices(indices: NDArray[np.int64], groups: NDArray[np.int64] | None = None) -> tuple[NDArray[np.int64], int]:
    """Which pairs of a batch this process computes on, and how many of them count.

    Given the group of every pair, all pairs of a group that are in the batch go to one process.
    """
    units = np.arange(len(indices)) if groups is None else np.unique(groups[indices], return_inverse=True)[1]
    own = np.flatnonzero(units % world_size() == rank())
    return own if len(own) else np.zeros(1, np.int64), len(own)
