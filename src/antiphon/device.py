"""Devices and threads: which to use, how memory is allocated, if Triton kernels can run, what may run side by side."""

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from antiphon.exceptions import RecipeError

First = TypeVar("First")
Second = TypeVar("Second")
_WORK_WORTH_SHARING = 50_000_000
"""Multiplications per step of a batch below which a second thread does not pay off."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""glibc's mallopt parameters: M_TRIM_THRESHOLD and M_MMAP_THRESHOLD."""
_MAX_KEPT, _LARGEST_BLOCK = 2**28, 2**25
"""Bytes of freed memory to keep, and of the largest block to keep: larger ones would fragment memory."""
SIDE_STREAMS = 2
"""Side streams; each one reserves memory of its own."""
AMPERE = 8
"""Compute capability of Ampere GPUs, the first that multiply in TF32 and bfloat16."""
_FIRST_VERSION = 3, 6
"""The first version of Triton that kernels are tested with; they use tensor descriptors and products in bfloat16."""


def choose_device(name: str) -> str:
    """``cpu`` or ``cuda``; ``auto`` is the GPU if there is one."""
    if name not in ("auto", "cpu", "cuda"):
        raise RecipeError(f"--device {name}: expected auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise RecipeError("--device cuda: no GPU found, expected auto or cpu")
    return "cuda" if name != "cpu" and torch.cuda.is_available() else "cpu"


def prepare_allocators(device: str) -> None:
    """Sets up memory allocation for training, for the whole process: commands do this, the Python API does not."""
    keep_freed_memory()
    if choose_device(device) == "cuda":
        use_expandable_segments()


def use_expandable_segments() -> None:
    """Makes PyTorch use expandable GPU memory segments, unless configured otherwise.

    CUDA graphs of many shapes need half as much memory that way. Must be called before a GPU is first used.
    """
    if not {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} & os.environ.keys():
        os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"


def limit_onednn_cache() -> None:
    """Makes oneDNN keep the code of few shapes, unless configured otherwise, for processes that meet ever new ones.

    By default it keeps that of 1,024, which takes 60 MB for small models. Must be called before anything is computed.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")


def keep_freed_memory() -> None:
    """Makes the C library keep freed memory for the next step instead of returning it to the system.

    Getting it back page by page takes a tenth of a training step of small models on a CPU. Only for glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _MAX_KEPT)
        mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK)


def choose_threads(batch_size: int, width: int, target_size: int, processes: int = 1) -> int:
    """The number of threads that suits the model: one for small models, whose operations are too short for more.

    ``width`` is that of the widest layer; ``processes`` on this machine share its cores. OMP_NUM_THREADS is a limit.
    """
    work = batch_size * width * max(4 * width, target_size)
    return 1 if work < _WORK_WORTH_SHARING else max(1, min(available_cores() // processes, _thread_limit()))


def _thread_limit() -> int:
    """The value of OMP_NUM_THREADS; no limit if it is unset, or set by ``torchrun``, which always sets it to 1."""
    limit = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(limit) if limit.isdecimal() and "TORCHELASTIC_RUN_ID" not in os.environ else sys.maxsize


def available_cores() -> int:
    """Number of cores that this process may use, or of all cores if the system does not say."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def kernels_can_run(tensor: Tensor) -> bool:
    """Whether kernels can run on a tensor: it is on a GPU, and Triton is installed and new enough."""
    return tensor.is_cuda and has_triton()


@cache
def has_triton() -> bool:
    """Whether Triton is installed, in a version that has all that kernels use."""
    if find_spec("triton") is None:
        return False
    import triton

    major, minor = triton.__version__.split(".")[:2]
    return (int(major), int(minor)) >= _FIRST_VERSION


@cache
def gpu_properties(device: torch.device) -> Any:
    """What a GPU has: compute capability, multiprocessors, shared memory."""
    return torch.cuda.get_device_properties(device)


def is_traced() -> bool:
    """Whether operations are recorded as a graph, which must suit all inputs: nothing can depend on values of these."""
    return bool(torch._C._get_tracing_state())


def run_concurrently(
    first: Callable[[], First], second: Callable[[], Second], side_stream: int
) -> tuple[First, Second]:
    """Both results. While a CUDA graph is captured, the second part and its gradients run on a side stream.

    Parts that may run at the same time need different side streams.
    """
    if not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
        return first(), second()
    here, beside = torch.cuda.current_stream(), _stream(side_stream)
    beside.wait_stream(here)
    with torch.cuda.stream(beside):
        from_beside = second()
    from_here = first()
    here.wait_stream(beside)
    for leaf in tree_leaves(from_beside):
        if isinstance(leaf, Tensor):
            leaf.record_stream(here)
    return from_here, from_beside


def join_side_streams() -> None:
    """Makes the current stream wait for every side stream that is capturing; a capture cannot end without it."""
    for side_stream in range(SIDE_STREAMS):
        with torch.cuda.stream(_stream(side_stream)):
            is_capturing = torch.cuda.is_current_stream_capturing()
        if is_capturing:
            torch.cuda.current_stream().wait_stream(_stream(side_stream))


@cache
def _stream(side_stream: int) -> torch.cuda.Stream:
    return torch.cuda.Stream()
