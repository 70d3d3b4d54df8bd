"""One step of training: alone, in parts, or together with other processes."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from antiphon.train.processes import size

_FULL_DECAY = 10**12
"""Updates after which no warm-up of an EMA is felt any more."""


class RunningAverage(nn.Module):
    """The EMA of a model's weights, with a warm-up: ``average <- d * average + (1 - d) * weights``.

    The first update takes the weights as they are. After it, update ``t = 0, 1, ...`` has
    ``d = min(decay, (1 + t) / (10 + t))``, so that the average never reaches back over most of a short run. ``updates``
    counts on the model's device: a captured step counts on when it is replayed, without a device sync.
    """

    updates: Tensor

    def __init__(self, model: nn.Module, decay: float) -> None:
        super().__init__()
        self.module, self.decay = deepcopy(model).requires_grad_(False), decay
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64), persistent=False)

    @torch.no_grad()
    def follow(self, model: nn.Module) -> None:
        """Moves along."""
        weight = 1 - (self.updates / (self.updates + 9)).clamp(max=self.decay)
        for own, new in zip(self.module.parameters(), model.parameters(), strict=True):
            own.lerp_(new, weight.to(own.dtype))
        self.updates += 1

    def get_extra_state(self) -> Tensor:
        """The number of updates so far, for checkpoints."""
        return self.updates

    def set_extra_state(self, state: Tensor | bool) -> None:
        """Goes on from a checkpoint; one of an older version says only that there were updates, all with full decay."""
        self.updates.fill_(_FULL_DECAY if state is True else state)


class Learned(NamedTuple):
    """What a step has seen: the sum of losses, still on its device, and of how many pairs."""

    total: Tensor
    pairs: int


@dataclass(frozen=True)
class Step:
    """Losses, gradients, clipping, new weights, and the running average of weights."""

    model: nn.Module
    losses: Callable[[Any], Tensor]
    optimiser: torch.optim.Optimizer
    clip: float
    average: RunningAverage | None = None
    backward: Callable[[Tensor], None] = Tensor.backward

    def __call__(self, batch: Any) -> Learned:
        """Learns from a batch whose pairs all count alike."""
        learned = self.gradients([batch])
        self.update()
        return learned

    def gradients(self, parts: Sequence[Any]) -> Learned:
        """Computes the gradients of a batch given in micro-batches, whose gradients add up; no weight moves yet."""
        pairs = sum(part.sizes[0] for part in parts)
        self.optimiser.zero_grad()
        totals = [self._add_gradients(part, 1 / pairs) for part in parts]
        return Learned(torch.stack(totals).sum(), pairs)

    def weighted_gradients(self, batch: Any, share: Tensor | float) -> Tensor:
        """Computes the gradients of a batch whose pairs count by their share; the sum of the losses that count."""
        self.optimiser.zero_grad()
        return self._add_gradients(batch, share)

    def in_shares(self, batch: Any, share: Tensor | float) -> Tensor:
        """Learns from a batch whose pairs count by their share, and gives the sum of the losses that count at all."""
        total = self.weighted_gradients(batch, share)
        self.update()
        return total

    def _add_gradients(self, batch: Any, share: Tensor | float) -> Tensor:
        losses = self.losses(batch)
        self.backward((losses * share).sum())
        return (losses.detach() * (share != 0)).sum()

    def update(self) -> None:
        """Clips the gradients, moves the weights once, and the EMA after them.

        It is never retried: after an error in here, weights may have moved already.
        """
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimiser.step()
        if self.average is not None:
            self.average.follow(self.model)


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
        """How much each pair of this share counts, so that the mean over processes is that over all pairs."""
        return size() / self.of if self.pairs else 0.0


@dataclass(frozen=True)
class SharedStep:
    """A step that several processes take together, such that it is that of one process on the whole batch."""

    step: Step

    def __call__(self, share: Share) -> Learned:
        """Learns from a share of a batch."""
        return Learned(self.step.in_shares(share.batch, share.weight), share.pairs)


def set_learning_rate(optimiser: torch.optim.Optimizer, value: float) -> None:
    """Changes the learning rate; where it is a number on a GPU, in its place, so that recordings see it."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(value)
        else:
            group["lr"] = value


def restore_optimiser(optimiser: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Takes what a checkpoint remembers of past gradients, but not how the device it comes from wanted to work."""
    own = [(group["lr"], group.get("capturable", False)) for group in optimiser.param_groups]
    optimiser.load_state_dict(state)
    for group, (learning_rate, capturable) in zip(optimiser.param_groups, own, strict=True):
        group["lr"], group["capturable"] = learning_rate, capturable
