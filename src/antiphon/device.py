"""Devices and threads: which to use, how memory is allocated, if Triton kernels can run, how a GPU is kept busy."""

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from antiphon.exceptions import RecipeError

First = TypeVar("First")
Second = TypeVar("Second")
State = TypeVar("State")
Record = TypeVar("Record")
CAPTURING = threading.Lock()
"""Held while a search step is captured; another thread that uses the GPU has to hold it, or the capture fails."""
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


class CapturedStep(Generic[State, Record]):
    """A step of a search, from a state to the next state and a record, captured as a CUDA graph and replayed.

    All kernels of a step are launched at once.

    States and records are nested tuples of tensors and constants. Shapes are static, and a step has
    no device sync. The first step runs eagerly, which warms up its kernels; the second is captured. The state that
    comes back is overwritten by the next step; records are not.
    """

    def __init__(self, step: Callable[[State], tuple[State, Record]], device: torch.device) -> None:
        self.step, self.device = step, device
        self._steps_taken = 0

    def __call__(self, state: State) -> tuple[State, Record]:
        """The state after one more step, and its record."""
        stream, outer_stream = _capture_stream(self.device), torch.cuda.current_stream(self.device)
        stream.wait_stream(outer_stream)
        with torch.cuda.stream(stream):
            after = self._take(state, stream)
        outer_stream.wait_stream(stream)
        return after

    def _take(self, state: State, stream: torch.cuda.Stream) -> tuple[State, Record]:
        self._steps_taken += 1
        if self._steps_taken == 1:
            return self.step(state)
        if self._steps_taken == 2:
            self._capture(state, stream)
        self._graph.replay()
        return self._state, _cloned(self._record)

    def _capture(self, state: State, stream: torch.cuda.Stream) -> None:
        """A graph that reads the state from fixed addresses and leaves the next one there."""
        self._graph, self._state = torch.cuda.CUDAGraph(), _cloned(state)
        with CAPTURING, torch.cuda.graph(self._graph, stream=stream):
            after, record = self.step(self._state)
            self._record = _cloned(record)
            for buffer, value in zip(*map(_tensors, (self._state, after)), strict=True):
                if value is not buffer:
                    buffer.copy_(value)


@cache
def _capture_stream(device: torch.device) -> torch.cuda.Stream:
    """The one stream on which search steps are captured."""
    return torch.cuda.Stream(device)


def _cloned(tree: State) -> State:
    found: State = tree_map_only(Tensor, Tensor.clone, tree)
    return found


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
