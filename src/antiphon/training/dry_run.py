"""What training will take, without training."""

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from antiphon.device import choose_device
from antiphon.exceptions import RunError
from antiphon.recipe.schema import Recipe
from antiphon.runs.build import count_parameters
from antiphon.runs.run_folder import RunFolder
from antiphon.terminal import Say
from antiphon.training.checks import check_recipe, warn_about_data
from antiphon.training.optimisation import EMA, Optimisation, TrainingLength
from antiphon.training.resolution import Resolution
from antiphon.training.step import Step, is_out_of_memory
from antiphon.training.task import TrainingSetup, choose_threads_of, prepare_task, train_by_counting
from antiphon.training.time_limit import describe_duration, fit_to_minutes, seconds_per_epoch

Sizes = tuple[int, int, int]
"""Pairs, rows and columns of a batch."""
_PROBES = 2, 3
"""Pairs of the two small steps; with a single pair, some operations would copy nothing."""
_STATES = {"adam": 2, "adagrad": 1}
"""Numbers that an optimiser keeps for each weight."""


@dataclass(frozen=True)
class MemoryEstimate:
    """What an epoch will take: ``largest`` is the batch with most cells, and memory is in bytes.

    Captured CUDA graphs have their own memory, besides that of steps which are not captured yet.
    """

    parameters: int
    batches: int
    largest: Sizes
    weights: int
    ema: int
    optimiser: int
    step: int
    cuda_graphs: int = 0

    @property
    def peak(self) -> int:
        """All memory in use at once."""
        return self.weights + self.ema + self.optimiser + self.step + self.cuda_graphs

    def lines(self) -> list[str]:
        """The estimate as lines of text."""
        pairs, rows, columns = self.largest
        kinds = {
            "weights": self.weights,
            "EMA": self.ema,
            "optimiser": self.optimiser,
            "gradients and activations": self.step,
            "the same in CUDA graphs": self.cuda_graphs,
        }
        return [
            f"{self.parameters:,} parameters",
            f"batches in the first epoch: {self.batches:,}, "
            f"the largest {pairs} pairs x {rows} rows x {columns} columns = {prod(self.largest):,} cells",
            f"about {_gib(self.peak)} GiB at the peak: "
            + ", ".join(f"{name} {_gib(size)}" for name, size in kinds.items() if size),
        ]


def estimate_memory(setup: TrainingSetup, optimisation: Optimisation, device: str) -> MemoryEstimate:
    """What the first epoch of training will take on a device."""
    model = setup.model.to(device).train()
    shapes = _shapes(setup)
    step = max(_step_bytes(setup, optimisation, sizes, device) for sizes in _extremes(shapes))
    return MemoryEstimate(
        parameters=count_parameters(model),
        batches=len(shapes),
        largest=_largest(shapes, shapes.prod(1)),
        weights=_bytes(_tensors(model)),
        ema=_bytes(_tensors(EMA(model, optimisation.ema_decay))) if optimisation.ema_decay else 0,
        optimiser=_STATES[optimisation.optimiser] * _bytes(_trained(model)),
        step=step,
        cuda_graphs=step if setup.uses_cuda_graphs and device == "cuda" else 0,
    )


def _step_bytes(setup: TrainingSetup, optimisation: Optimisation, sizes: Sizes, device: str) -> int:
    """The most bytes in use during a step on a batch of these sizes, gradients included."""
    pairs, rows, columns = sizes
    optimiser = optimisation.new_optimiser(setup.model)
    step = Step(setup.model, setup.loss, optimiser, optimisation.clip, bfloat16=optimisation.bfloat16)

    def use(pairs: int) -> NDArray[np.float64]:
        return _bytes_in_use(step, setup.sample(pairs, rows, columns).to(device))

    try:
        use(_PROBES[0])  # what happens only in a first step does not count
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


def _bytes_in_use(step: Step, batch: Iterable[Tensor]) -> NDArray[np.float64]:
    """The bytes that a training step has in use after each of its operations, without weights and batch."""
    with _Ledger([*_tensors(step.model), *_tensors_in(batch)]) as ledger:
        step.losses(batch).mean().backward()
    step.optimiser.zero_grad()
    return np.array(ledger.history, np.float64)


def _shapes(setup: TrainingSetup) -> NDArray[np.int64]:
    """Pairs, rows and columns of every batch of the first epoch."""
    rows, columns = setup.lengths
    plan = setup.batches.plan(0)
    return np.array([(len(indices), rows[indices].max(), columns[indices].max()) for indices in plan])


def _extremes(shapes: NDArray[np.int64]) -> set[Sizes]:
    """The batches that may need most memory: most cells, tokens, target tokens, or pairs of positions of one side."""
    pairs, rows, columns = shapes.T
    amounts = shapes.prod(1), pairs * (rows + columns), pairs * columns, pairs * (rows**2 + columns**2)
    return {_largest(shapes, amount) for amount in amounts}


def _largest(shapes: NDArray[np.int64], amounts: NDArray[np.int64]) -> Sizes:
    pairs, rows, columns = shapes[amounts.argmax()].tolist()
    return pairs, rows, columns


class _Ledger(TorchDispatchMode):
    """Records after every operation how many bytes are in use, those of ``others`` not counted."""

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
    """The identity of a tensor's storage."""
    key: int = tensor.untyped_storage()._cdata
    return key


def _gib(size: int) -> str:
    return f"{size / 2**30:.3f}"


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    yield from module.parameters()
    yield from module.buffers()


def _trained(module: nn.Module) -> Iterator[Tensor]:
    return (weight for weight in module.parameters() if weight.requires_grad)


def _tensors_in(batch: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors of a batch, which may have a batch inside."""
    for part in batch:
        if isinstance(part, Tensor):
            yield part
        else:
            yield from _tensors_in(part)


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def dry_run(recipe: Recipe, *, say: Say, device: str = "auto", threads: int | None = None) -> None:
    """Reads and encodes the data as training would, reports what training will take, and leaves nothing behind."""
    check_recipe(recipe)
    warn_about_data(recipe, say)
    with TemporaryDirectory(prefix="antiphon-") as folder:
        run = RunFolder(Path(folder))
        if train_by_counting(recipe, run, say):
            say(f"{recipe.model.kind}: learns by counting, without batches and with very little memory")
            return
        where = choose_device(device)
        task = fit_to_minutes(prepare_task(recipe, run, say), run, say, where, threads)
        say_settings(task.settings, say)
        torch.set_num_threads(choose_threads_of(task, threads))
        settings = task.settings.recipe.train
        say(f"{recipe.model.kind}, on {where}:")
        setup = task.setup(run, is_new=True)
        length, optimisation = TrainingLength.of(settings), Optimisation.of(settings, setup.pairs)
        say(setup.describe_length(length))
        for line in estimate_memory(setup, optimisation, where).lines():
            say(line)
        say(describe_duration(seconds_per_epoch(task.setup(run, is_new=True), optimisation, where), length.max_epochs))


def say_settings(settings: Resolution, say: Say) -> None:
    """Shows the settings that the recipe leaves unset, their values, and why they were chosen."""
    if settings.reasons:
        say("settings that the recipe leaves unset:")
    for line in settings.table():
        say(f"  {line}")
