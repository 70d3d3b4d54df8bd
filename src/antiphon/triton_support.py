"""Whether Triton kernels can run. Each is in a ``*_triton.py`` file beside its PyTorch reference."""

from functools import cache
from importlib.util import find_spec

from torch import Tensor


def kernels_can_run(tensor: Tensor) -> bool:
    """Whether kernels can run on a tensor: it is on a GPU, and Triton is installed."""
    return tensor.is_cuda and _has_triton()


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None
