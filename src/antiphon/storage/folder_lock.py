"""One writer at a time: a lock on a folder itself, which leaves no file behind and ends with the process."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from antiphon.exceptions import RunError
from antiphon.storage.atomic import is_same_file, lock_descriptor


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Inside, this process alone writes into the folder, which is made if there is none.

    A folder that another process writes into is refused, or with ``wait`` waited for. Folders that were made here are
    removed again if all fails and they are empty.
    """
    while True:
        made = _make_folders(path)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:  # another process made the folder and removed it again
            continue
        try:
            if not lock_descriptor(descriptor, wait=wait):
                raise RunError(
                    f"{path}: another antiphon process is writing into this folder, expected no other; wait until it "
                    "has ended, or choose another folder"
                )
            if not is_same_file(descriptor, path):
                continue
            yield
            return
        except BaseException:
            _remove_empty(made)
            raise
        finally:
            os.close(descriptor)


def _make_folders(path: Path) -> list[Path]:
    """Makes a folder and those that it is in, and gives those that were made, the innermost first."""
    if path.exists() and not path.is_dir():
        raise RunError(f"{path}: a file, expected a folder")
    if ".." in path.parts and not path.parent.exists():  # where it leads depends on a folder that is not there
        raise RunError(f"{path}: goes through a folder that does not exist, expected a path without '..'")
    missing = [folder for folder in (path.resolve(), *path.resolve().parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
    return missing


def _remove_empty(folders: list[Path]) -> None:
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()
