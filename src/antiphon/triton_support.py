"""What computes: whether Triton kernels can run, what the GPU has, and whether operations become a graph instead.

Kernels are each beside their PyTorch reference in a ``*_triton.py`` file.
"""

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

AMPERE = 8
"""Compute capability of Ampere GPUs, the first that multiply in TF32 and bfloat16."""

_FIRST_VERSION = 3, 6
"""The first version of Triton that kernels are tested with; they use tensor descriptors and products in bfloat16."""


def kernels_can_run(tensor: Tensor) -> bool:
    """Whether kernels can run on a tensor: it is on a GPU, and Triton is installed and new enough."""
    return tensor.is_cuda and has_triton()


def is_traced() -> bool:
    """Whether operations are recorded as a graph, which must suit all inputs: nothing can depend on values of these."""
    return bool(torch._C._get_tracing_state())


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
