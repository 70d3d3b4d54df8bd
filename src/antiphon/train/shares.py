"""Batches shared by several processes: each computes on some of the pairs, and together they take one step."""

from typing import Any, NamedTuple, cast

from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel

from antiphon.train.module import EpochBatches, Numbers, TrainingModule
from antiphon.train.processes import rank, size, size_on_this_machine


class Share(NamedTuple):
    """What one process has of a batch: ``pairs`` of all its ``of`` pairs.

    A batch of fewer pairs than processes leaves some with none; they compute on a pair of another process and weigh it
    by nothing, so that every process takes part in every step.
    """

    batch: Any
    pairs: int
    of: int

    @property
    def weight(self) -> float:
        """How much the mean over this share counts, so that the mean over processes is that over all pairs."""
        return size() * self.pairs / self.of


class SharedSteps(DDPStrategy):
    """Lightning's DDP on shares of batches, such that a step is that of one process on the whole batch."""

    def configure_ddp(self) -> None:
        """Leaves buffers, such as word vectors, out of every step: they are the same in all processes."""
        super().configure_ddp()
        cast(DistributedDataParallel, self.model).broadcast_buffers = False

    def training_step(self, share: Share, number: int) -> Tensor:
        """The weighed loss of a share."""
        loss = cast(Tensor, super().training_step(share.batch, number))
        if not share.pairs:  # another process counts this pair
            cast(TrainingModule, self.lightning_module).train_loss.add(-loss.detach(), -1)
        return loss * share.weight


def shared(batches: EpochBatches) -> EpochBatches:
    """The same batches, or of each the share of this process."""
    if size() == 1:
        return batches

    def share(numbers: Numbers) -> Share:
        own = numbers[rank() :: size()]
        return Share(batches.batch(own if len(own) else numbers[:1]), len(own), len(numbers))

    return EpochBatches(share, batches.plan, seed=batches.seed, epoch=batches.epoch)


def trainer_options(device: str) -> dict[str, Any]:
    """How many devices Lightning uses, and how processes take steps together: over nccl on GPUs, over gloo else."""
    if size() == 1:
        return {"devices": 1}
    group = distributed.new_group(backend="nccl") if device == "cuda" else None
    return {
        "devices": size_on_this_machine(),
        "num_nodes": size() // size_on_this_machine(),
        "strategy": SharedSteps(process_group=group),
        "use_distributed_sampler": False,
    }
