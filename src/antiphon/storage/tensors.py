"""Safetensors files: shapes are checked before memory is allocated, and values must be finite."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from antiphon.exceptions import RunError

Shapes = dict[str, tuple[int, ...]]
_TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64)
"""Types of numbers in files of weights."""


def read_shapes(path: Path) -> Shapes:
    """The shape of every tensor, read from the header."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise RunError(f"{path}: damaged or cut short ({error}), expected safetensors weights") from None


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Writes tensors; a full disk raises ``OSError``."""
    try:
        safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    except safetensors.SafetensorError as error:
        code = re.search(r"os error (\d+)", str(error))
        if code is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from error


def load_finite(path: Path) -> dict[str, Tensor]:
    """All tensors of a file; NaN, infinite numbers and other types are refused by the name of their tensor."""
    try:
        tensors = safetensors.torch.load_file(path)
    except safetensors.SafetensorError as error:
        raise RunError(f"{path}: damaged or cut short ({error}), expected safetensors weights") from None
    for name, tensor in tensors.items():
        if tensor.dtype not in (*_TYPES, torch.get_default_dtype()):  # others could become infinite, or lose a part
            raise RunError(f"{path}: {name} is of {tensor.dtype}, expected one of {', '.join(map(str, _TYPES))}")
        if not torch.isfinite(tensor).all():
            raise RunError(f"{path}: {name} holds NaN or infinite numbers, expected finite weights; train again")
    return tensors


def load_into(build: Callable[[], nn.Module], path: Path, layers: int) -> nn.Module:
    """The module that ``build`` makes, with the weights of a file.

    Its shapes are compared with the file's header before it is built. Each of its ``layers`` must have a tensor in the
    file.
    """
    found = read_shapes(path)
    if layers > len(found):
        raise RunError(f"{path}: {len(found)} tensors, expected those of {layers:,} layers as in the recipe")
    _compare(found, _shapes_of(build, path), path)
    module = build()
    module.load_state_dict(load_finite(path))
    return module.eval()


def _shapes_of(build: Callable[[], nn.Module], path: Path) -> Shapes:
    """The shapes of a module's tensors, without memory for any of them."""
    try:
        with torch.device("meta"), _Undrawn():
            module = build()
    except (RuntimeError, OverflowError) as error:
        raise RunError(f"{path}: not the weights of this run's recipe, whose model cannot be built ({error})") from None
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


class _Undrawn(TorchFunctionMode):
    """Leaves out initial values: for tensors without memory, drawing some of them imports all of PyTorch's compiler."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if getattr(func, "__module__", None) == nn.init.__name__:
            return given["tensor"]
        return func(*args, **given)


def _compare(found: Shapes, expected: Shapes, path: Path) -> None:
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            raise RunError(
                f"{path}: not the weights of this run's recipe and vocabularies "
                f"({name}: {_shown(found.get(name))}, expected {_shown(expected.get(name))})"
            )


def _shown(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else "x".join(map(str, shape)) or "a single number"
