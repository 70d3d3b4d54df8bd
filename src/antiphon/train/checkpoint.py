"""All that is needed to go on training after an epoch, in one file of plain tensors and numbers.

Random numbers and the order of batches need no place in it: both follow from the seed and the epoch's number.
"""

from pathlib import Path
from typing import Any, TypedDict

import torch

from antiphon.errors import RunError
from antiphon.run import replaced_whole


class Checkpoint(TypedDict):
    """Training as it stands after ``epochs`` epochs."""

    epochs: int
    module: dict[str, Any]
    optimiser: dict[str, Any]
    rows: list[dict[str, float]]
    best: dict[str, float]


def save_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Replaces the checkpoint in one move, so that a full disk or a kill leaves the one before whole."""
    with replaced_whole(path) as new:
        torch.save(checkpoint, new)


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
    return checkpoint
