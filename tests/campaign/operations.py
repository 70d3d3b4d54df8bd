"""Every change of the disk that a command makes, heard of before it happens.

Python's audit events name files that are opened for writing, renamed, deleted or made. What writes files from compiled
code (weights, checkpoints, corpora) and ``fsync`` have no such events and are wrapped.
"""

import os
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import safetensors.torch
import torch

_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_PATHS = {"os.rename": 1, "os.remove": 0, "os.rmdir": 0, "os.mkdir": 0, "os.chmod": 0, "os.truncate": 0}
"""Where an audit event has the path that it is about."""
_FOLDERS = {"os.rename": 3, "os.remove": 1, "os.rmdir": 1, "os.mkdir": 2}
"""Where it has the descriptor of the folder that a relative path starts from."""


class Operation(NamedTuple):
    """What is about to happen to which path; a half-written file is one that compiled code has just written."""

    name: str
    path: Path
    half_written: bool = False

    @property
    def needs_room(self):
        """Whether a full disk can make it fail."""
        return self.name in ("open", "os.mkdir", "os.rename", "fsync", "write") and not self.half_written


_DEAF = threading.local()


def stop_watching():
    """From here on this thread's operations are its own business."""
    _DEAF.now = True


def watch(root, hear):
    """Calls ``hear`` with every operation under ``root`` for the rest of this process's life."""

    def tell(name, path, half_written=False):
        if not getattr(_DEAF, "now", False) and Path(root) in Path(path).absolute().parents:
            _DEAF.now = True
            try:
                hear(Operation(name, Path(path), half_written))
            finally:
                _DEAF.now = False

    sys.addaudithook(lambda event, arguments: _tell_event(tell, event, arguments))
    fsync = os.fsync
    os.fsync = lambda descriptor: (tell("fsync", _path_of(descriptor)), fsync(descriptor))[1]
    for module, name, place in ((safetensors.torch, "save_file", 1), (torch, "save", 1)):
        setattr(module, name, _wrap_writer(tell, getattr(module, name), place))


def _wrap_writer(tell, write, place):
    """A function that writes a file from compiled code, heard of before it begins and when half of it is written."""

    def wrapped(*arguments, **options):
        target = arguments[place]
        path = target.name if hasattr(target, "write") else target
        tell("write", path)
        write(*arguments, **options)
        tell("write", path, half_written=True)

    return wrapped


def _tell_event(tell, event, arguments):
    if event == "open":
        path, _, flags = arguments
        if isinstance(path, str | bytes) and flags & _WRITE_FLAGS:
            tell("open", os.fsdecode(path))
    elif event in _PATHS:
        path = os.fsdecode(arguments[_PATHS[event]])
        folder = arguments[_FOLDERS[event]] if event in _FOLDERS else -1
        tell(event, path if folder is None or folder < 0 else Path(_path_of(folder), path))


def _path_of(descriptor):
    try:
        return Path(f"/proc/self/fd/{descriptor}").readlink()
    except OSError:
        return ""
