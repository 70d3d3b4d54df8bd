"""How long an epoch will take, found out from a few of its steps."""

import time

import torch

from antiphon.terminal import duration
from antiphon.train.loop import Fitting
from antiphon.train.step import Step

_QUANTILES = 0.1, 0.3, 0.5, 0.7, 0.9
"""Where among the batches of an epoch, from small to large, those stand that are timed."""


def seconds_per_epoch(fitting: Fitting, device: str) -> float:
    """About how long the steps of an epoch take: the mean of some, from small batches to large ones.

    The weights move, as they do in training.
    """
    module, settings = fitting.module.to(device).train(), fitting.module.optimisation
    step = Step(module.model, module.losses, settings.optimiser_of(module.model), settings.clip, module.averaged)
    plan = fitting.batches.plan_epoch(0)
    rows, columns = fitting.lengths
    plan.sort(key=lambda numbers: len(numbers) * int(rows[numbers].max()) * int(columns[numbers].max()))
    some = [
        fitting.batches.batch(numbers, numbers).to(device)
        for numbers in (plan[int(share * len(plan))] for share in _QUANTILES)
    ]
    step(some[0])  # the first step of all takes longer
    _wait(device)
    started = time.perf_counter()
    for batch in some:
        step(batch)
    _wait(device)
    return (time.perf_counter() - started) / len(some) * len(plan)


def describe_duration(seconds: float, max_epochs: int) -> str:
    """The time of an epoch and of all of them, for people."""
    epoch = f"{seconds:.1f} s" if seconds < 10 else duration(seconds)
    whole = duration(seconds * max_epochs)
    return f"about {epoch} per epoch, {whole} for all {max_epochs} epochs, without validation"


def _wait(device: str) -> None:
    """Until a GPU has done what it was asked to."""
    if device == "cuda":
        torch.cuda.synchronize()
