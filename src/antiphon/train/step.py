"""One step of training, and on a GPU its recording: the host asks for all kernels of a step at once."""

from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from antiphon.data.batch import Batch
from antiphon.train.processes import size

_MOST_RECORDINGS = 128
"""Shapes of batches recorded at most; others run step by step."""


class RunningAverage(nn.Module):
    """A copy of a model whose weights follow it: ``average <- decay * average + (1 - decay) * weights``."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        super().__init__()
        self.module, self.decay = deepcopy(model).requires_grad_(False), decay
        self.started = False

    @torch.no_grad()
    def follow(self, model: nn.Module) -> None:
        """Moves along; the first time, takes the weights as they are."""
        own, new = tuple(self.module.parameters()), tuple(model.parameters())
        torch._foreach_lerp_(own, new, 1 - self.decay if self.started else 1.0)
        self.started = True

    def get_extra_state(self) -> bool:
        """Whether there is an average yet, for checkpoints."""
        return self.started

    def set_extra_state(self, state: bool) -> None:
        """Goes on from a checkpoint."""
        self.started = state


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
        return self.in_parts([batch])

    def in_parts(self, parts: Sequence[Any]) -> Learned:
        """Learns from a batch in parts, whose gradients add up before the weights move."""
        pairs = sum(part.sizes[0] for part in parts)
        self.optimiser.zero_grad()
        totals = [self._add_gradients(part, 1 / pairs) for part in parts]
        self._move()
        return Learned(torch.stack(totals).sum(), pairs)

    def in_shares(self, batch: Any, share: Tensor | float) -> Tensor:
        """Learns from a batch whose pairs count by their share, and gives the sum of the losses that count at all."""
        self.optimiser.zero_grad()
        total = self._add_gradients(batch, share)
        self._move()
        return total

    def _add_gradients(self, batch: Any, share: Tensor | float) -> Tensor:
        losses = self.losses(batch)
        self.backward((losses * share).sum())
        return (losses.detach() * (share != 0)).sum()

    def _move(self) -> None:
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
        self.step.optimiser.zero_grad()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            total = self.step.in_shares(batch, share)
        self._recordings[shape] = _Recording(graph, batch, share, total)
        graph.replay()
        return total.clone()

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


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def _up_length(length: int) -> int:
    return _up(length, 4 if length < 64 else 8)
