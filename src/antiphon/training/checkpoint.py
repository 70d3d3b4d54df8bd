"""All that is needed to resume training, in one file of plain tensors and numbers.

A checkpoint is written at the end of each epoch, and every few minutes within one. At the end of an epoch, random
numbers and the order of batches follow from the seed and the next epoch. Within an epoch each process adds the state
of its random number generators and its sum of losses.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor

from antiphon.exceptions import RunError


class RankState(TypedDict):
    """The state of one process within an epoch: random number generators by device, and its losses so far."""

    random: dict[str, Tensor]
    loss: Tensor
    pairs: int


class Checkpoint(TypedDict):
    """Training after ``epochs`` epochs and ``updates`` updates of the next one, which took ``seconds`` so far.

    ``max_cells`` are the limits of training and validation found after out-of-memory errors. ``ranks`` has an entry for
    each process within an epoch, and none between epochs.
    """

    epochs: int
    updates: int
    seconds: float
    ranks: list[RankState]
    model: dict[str, Any]
    ema: dict[str, Any] | None
    optimiser: dict[str, Any]
    max_cells: list[int | None]
    rows: list[dict[str, float]]
    best: dict[str, float]


def save_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Writes a checkpoint; a full disk is an ``OSError``, as everywhere."""
    try:
        with path.open("wb") as file:
            torch.save(checkpoint, file)
    except RuntimeError as error:  # PyTorch cannot finish a file that could not be written
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def load_checkpoint(path: Path) -> Checkpoint | None:
    """The checkpoint, if there is one; nothing in it is executed."""
    if not path.exists():
        return None
    try:
        checkpoint: Checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise RunError(
            f"{path}: damaged ({type(error).__name__}), expected a checkpoint; --force starts again"
        ) from None
    if not isinstance(checkpoint, dict) or checkpoint.keys() != Checkpoint.__annotations__.keys():
        raise RunError(f"{path}: not a checkpoint of training, expected one; --force starts again")
    return checkpoint


@contextmanager
def refuse_other_shapes(path: Path) -> Iterator[None]:
    """Inside, a checkpoint that does not fit the model is refused."""
    try:
        yield
    except (RuntimeError, KeyError, ValueError, TypeError) as error:
        if not path.exists():
            raise
        raise RunError(
            f"{path}: does not fit the model of this run's recipe ({str(error).splitlines()[0]}), expected the "
            "checkpoint of this run; --force starts again"
        ) from error
