"""Batches shared by several processes: each computes on some of the pairs, and together they take one step."""

from typing import Any, cast

from lightning.pytorch.strategies import DDPStrategy
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from antiphon.train.module import EpochBatches, Numbers
from antiphon.train.processes import rank, size, size_on_this_machine
from antiphon.train.step import Share


class OwnBuffers(DDPStrategy):
    """Lightning's DDP, in which every process keeps its own buffers."""

    def configure_ddp(self) -> None:
        """Leaves buffers, such as word vectors, out of every step: they are the same in all processes."""
        super().configure_ddp()
        cast(DistributedDataParallel, self.model).broadcast_buffers = False


def shared(batches: EpochBatches) -> EpochBatches:
    """The same batches, or of each the share of this process."""
    if size() == 1:
        return batches

    def share(numbers: Numbers, seeds: Numbers) -> Share:
        own = slice(rank(), None, size()) if rank() < len(numbers) else slice(1)
        return Share(batches.batch(numbers[own], seeds[own]), len(numbers[rank() :: size()]), len(numbers))

    return EpochBatches(share, batches.plan, seed=batches.seed, epoch=batches.epoch, passes=batches.passes)


def trainer_options(device: str) -> dict[str, Any]:
    """How many devices Lightning uses, and how processes take steps together: over nccl on GPUs, over gloo else."""
    if size() == 1:
        return {"devices": 1}
    group = distributed.new_group(backend="nccl") if device == "cuda" else None
    return {
        "devices": size_on_this_machine(),
        "num_nodes": size() // size_on_this_machine(),
        "strategy": OwnBuffers(process_group=group),
        "use_distributed_sampler": False,
    }
