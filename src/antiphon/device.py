"""Which processor, and how many of its threads."""

import ctypes
import os
import sys

import torch

from antiphon.exceptions import RecipeError
from antiphon.recipe.schema import Recipe

_WORK_WORTH_SHARING = 50_000_000
"""Multiplications of one step of a batch below which a second thread costs more than it gives."""


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's settings: how much freed memory it keeps, and from which size on blocks are the system's own."""
_MOST_KEPT, _LARGEST_BLOCK = 2**28, 2**25
"""Bytes; larger blocks would leave gaps that nothing fits."""


def choose_device(name: str) -> str:
    """``cpu`` or ``cuda``; ``auto`` is the GPU if there is one."""
    if name not in ("auto", "cpu", "cuda"):
        raise RecipeError(f"--device {name}: expected auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise RecipeError("--device cuda: no GPU found, expected auto or cpu")
    return "cuda" if name != "cpu" and torch.cuda.is_available() else "cpu"


def let_memory_grow() -> None:
    """Has PyTorch take memory of a GPU in pieces that can grow, where nothing else is asked for.

    Recorded steps of many shapes take half as much that way. Heard only before a GPU is first used.
    """
    if not {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} & os.environ.keys():
        os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"


def keep_freed_memory() -> None:
    """Has the C library keep what is freed for the next step, instead of giving it back and asking for it anew.

    The system hands out memory page by page, which takes a tenth of a training step of small models on a CPU. Only
    glibc can be told.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _MOST_KEPT)
        mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK)


def choose_threads(recipe: Recipe, target_size: int, processes: int = 1) -> int:
    """How many threads suit the model: one for the small ones, whose operations are over before a second helps.

    ``processes`` on this machine share its cores.
    """
    hidden = recipe.model.hidden_size
    work = recipe.train.batch_size * hidden * max(4 * hidden, target_size)
    return 1 if work < _WORK_WORTH_SHARING else max(1, available_cores() // processes)


def available_cores() -> int:
    """How many cores this process may use; where the system does not say, how many there are."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
