"""How much memory training will take, found out with the memory of a few pairs.

Every number that a training step keeps belongs to a pair of the batch, or to none: after each operation the bytes in
use are a line over the number of pairs. Two small steps at the padded lengths of the largest batch give that line for
every operation, and the peak is the highest point that all of them reach at the real number of pairs. What is measured
is the model itself, so there is no formula to keep true.
"""

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from antiphon.exceptions import RunError
from antiphon.runs.build import count_parameters
from antiphon.train.loop import Fitting
from antiphon.train.module import TrainingModule
from antiphon.train.within_memory import is_out_of_memory

Sizes = tuple[int, int, int]
"""Pairs, rows and columns of a batch."""

_PROBES = 2, 3
"""Pairs of the two small steps; one alone would let operations pass that copy nothing for a single pair."""

_STATES = {"adam": 2, "adagrad": 1}
"""Numbers that an optimiser keeps for each weight."""


@dataclass(frozen=True)
class Forecast:
    """What an epoch will take: ``largest`` is the batch of most cells, and memory is in bytes.

    Recorded steps work in memory of their own, beside that of steps which are not recorded yet.
    """

    parameters: int
    batches: int
    largest: Sizes
    weights: int
    average: int
    optimiser: int
    step: int
    recordings: int = 0

    @property
    def peak(self) -> int:
        """All that is in use at once."""
        return self.weights + self.average + self.optimiser + self.step + self.recordings

    def lines(self) -> list[str]:
        """All of it for people."""
        pairs, rows, columns = self.largest
        kinds = {
            "weights": self.weights,
            "running average": self.average,
            "optimiser": self.optimiser,
            "gradients and activations": self.step,
            "the same while recorded": self.recordings,
        }
        return [
            f"{self.parameters:,} parameters",
            f"batches in the first epoch: {self.batches:,}, "
            f"the largest {pairs} pairs x {rows} rows x {columns} columns = {prod(self.largest):,} cells",
            f"about {_gib(self.peak)} GiB at the peak: "
            + ", ".join(f"{name} {_gib(size)}" for name, size in kinds.items() if size),
        ]


def forecast(fitting: Fitting, device: str) -> Forecast:
    """What the first epoch of a training will take on a device."""
    module = fitting.module.to(device).train()
    shapes = _shapes(fitting)
    step = max(_step_bytes(fitting, sizes, device) for sizes in _extremes(shapes))
    return Forecast(
        parameters=count_parameters(module.model),
        batches=len(shapes),
        largest=_largest(shapes, shapes.prod(1)),
        weights=_bytes(_tensors(module.model)),
        average=_bytes(_tensors(module.averaged)) if module.averaged is not None else 0,
        optimiser=_STATES[module.optimisation.optimiser]
        * _bytes(weight for weight in module.model.parameters() if weight.requires_grad),
        step=step,
        recordings=step if module.records_steps else 0,
    )


def _step_bytes(fitting: Fitting, sizes: Sizes, device: str) -> int:
    """The most bytes in use during a step on a batch of these sizes, gradients included."""
    pairs, rows, columns = sizes

    def use(number: int) -> NDArray[np.float64]:
        return _bytes_in_use(fitting.module, fitting.sample(number, rows, columns).to(device))

    try:
        use(_PROBES[0])  # what happens in a first step alone does not count
        few, more = map(use, _PROBES)
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise RunError(
                f"out of memory: {_PROBES[1]} pairs of {rows:,} source and {columns:,} target tokens do not fit on "
                f"{device}, expected a lower data.max_cells, data.max_source_length or data.max_target_length"
            ) from None
        raise
    per_pair = (more - few) / (_PROBES[1] - _PROBES[0])
    return int((few + per_pair * (pairs - _PROBES[0])).max())


def _bytes_in_use(module: TrainingModule, batch: Iterable[Tensor]) -> NDArray[np.float64]:
    """The bytes that a training step has in use after each of its operations, without weights and batch."""
    with _Ledger([*_tensors(module), *batch]) as ledger:
        module.losses(batch).mean().backward()
    module.zero_grad(set_to_none=True)
    return np.array(ledger.history, np.float64)


def _shapes(fitting: Fitting) -> NDArray[np.int64]:
    """Pairs, rows and columns of every batch of the first epoch."""
    rows, columns = fitting.lengths
    plan = fitting.batches.plan_epoch(0)
    return np.array([(len(numbers), rows[numbers].max(), columns[numbers].max()) for numbers in plan])


def _extremes(shapes: NDArray[np.int64]) -> set[Sizes]:
    """The batches that may take most: of most cells, most tokens, most tokens of the target."""
    pairs, rows, columns = shapes.T
    return {_largest(shapes, amount) for amount in (shapes.prod(1), pairs * (rows + columns), pairs * columns)}


def _largest(shapes: NDArray[np.int64], amounts: NDArray[np.int64]) -> Sizes:
    pairs, rows, columns = shapes[amounts.argmax()].tolist()
    return pairs, rows, columns


class _Ledger(TorchDispatchMode):
    """Notes after every operation how many bytes are in use, those of ``others`` not counted."""

    def __init__(self, others: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.history: list[int] = []
        self._in_use = 0
        self._known: dict[int, Any] = {_key(tensor): tensor for tensor in others}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and _key(tensor) not in self._known:
                self._enter(tensor)
        self.history.append(self._in_use)
        return result

    def _enter(self, tensor: Tensor) -> None:
        key, storage = _key(tensor), tensor.untyped_storage()
        size = storage.nbytes()

        def leave(_: Any) -> None:
            del self._known[key]
            self._in_use -= size

        self._known[key] = weakref.ref(storage, leave)
        self._in_use += size


def _key(tensor: Tensor) -> int:
    """What tensors have in common that share their numbers."""
    key: int = tensor.untyped_storage()._cdata
    return key


def _gib(size: int) -> str:
    return f"{size / 2**30:.3f}"


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    yield from module.parameters()
    yield from module.buffers()


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
