"""All that is needed to go on training after an epoch, in one file of plain tensors and numbers.

Random numbers and the order of batches need no place in it: both follow from the seed and the epoch's number.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

import torch

from antiphon.exceptions import RunError


class Checkpoint(TypedDict):
    """Training as it stands after ``epochs`` epochs."""

    epochs: int
    module: dict[str, Any]
    optimiser: dict[str, Any]
    rows: list[dict[str, float]]
    best: dict[str, float]


def save_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Writes a checkpoint; a disk that is full is an ``OSError``, as everywhere."""
    try:
        with path.open("wb") as file:
            torch.save(checkpoint, file)
    except RuntimeError as error:  # PyTorch cannot end a file that could not be written
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
            f"{path}: damaged ({type(error).__name__}), expected a checkpoint; --force begins anew"
        ) from None
    if not isinstance(checkpoint, dict) or checkpoint.keys() != Checkpoint.__annotations__.keys():
        raise RunError(f"{path}: no checkpoint of training, expected one; --force begins anew")
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
            "checkpoint of this run; --force begins anew"
        ) from error
