"""How long an epoch will take, measured on a few of its steps."""

import time

import torch

from antiphon.terminal import duration, silent
from antiphon.training.optimisation import Optimisation
from antiphon.training.step.step import Step
from antiphon.training.training_setup import TrainingSetup
from antiphon.training.training_state import TrainingState

_QUANTILES = 0.1, 0.3, 0.5, 0.7, 0.9
"""Which batches of an epoch are timed, ordered from small to large."""


def seconds_per_epoch(setup: TrainingSetup, optimisation: Optimisation, device: str) -> float:
    """About how long the steps of an epoch take: the mean of some, from small batches to large ones.

    The weights move, as they do in training.
    """
    state = TrainingState.new(setup.model, optimisation, torch.device(device), silent)
    step = Step(state.model, setup.loss, state.optimiser, optimisation.clip, state.ema, optimisation.bfloat16)
    plan = setup.batches.plan(0)
    rows, columns = setup.lengths
    plan.sort(key=lambda indices: len(indices) * int(rows[indices].max()) * int(columns[indices].max()))
    some = [
        setup.batches.load(indices, indices).to(device)  # any random seeds do
        for indices in (plan[int(quantile * len(plan))] for quantile in _QUANTILES)
    ]
    step(some[0])  # the first step of all takes longer
    _synchronise(device)
    started = time.perf_counter()
    for batch in some:
        step(batch)
    _synchronise(device)
    return (time.perf_counter() - started) / len(some) * len(plan)


def describe_duration(seconds: float, max_epochs: int) -> str:
    """The time of an epoch and of all epochs as text."""
    epoch = f"{seconds:.1f} s" if seconds < 10 else duration(seconds)
    whole = duration(seconds * max_epochs)
    return f"about {epoch} per epoch, {whole} for all {max_epochs} epochs, without validation"


def _synchronise(device: str) -> None:
    """Waits until a GPU has finished all work."""
    if device == "cuda":
        torch.cuda.synchronize()
