"""Reads arrays of ``.npz`` files without trusting their headers and without executing anything."""

import math
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from antiphon.exceptions import InputError
from antiphon.torch_free.files import named_errors

_EXPECTED = "expected an npz file, as numpy.savez writes it"


def read_arrays(path: Path, names: Collection[str]) -> dict[str, NDArray[Any]]:
    """Those of the named arrays that the file has; no more memory is allocated than the file really holds."""
    try:
        with named_errors(path, "an npz file"), path.open("rb") as file, zipfile.ZipFile(file) as archive:
            members = {name: f"{name}.npy" for name in names if f"{name}.npy" in archive.namelist()}
            return {name: _read_array(archive, member) for name, member in members.items()}
    except (ValueError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        raise InputError(f"{path}: cannot be read ({error}), {_EXPECTED}") from None


def _read_array(archive: zipfile.ZipFile, member: str) -> NDArray[Any]:
    size = archive.getinfo(member).file_size
    with archive.open(member) as file:
        shape, is_fortran, dtype = _read_header(file)
        rest = size - file.tell()
        if dtype.hasobject or math.prod(shape) * dtype.itemsize != rest:
            raise ValueError(f"{member} holds {rest:,} bytes and claims to have shape {shape} of {dtype}")
        content = file.read(rest)
    if len(content) != rest:
        raise ValueError(f"{member} is cut short")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if is_fortran else "C")


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type of an array."""
    try:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        return read(file)
    except (OSError, zipfile.BadZipFile, zlib.error):
        raise
    except Exception as error:  # a header is a Python literal; parsing it can raise anything
        raise ValueError(f"damaged header: {error}") from None
