"""One writer at a time: a lock on a folder itself, which leaves no file behind and ends with the process.

The library ``filelock`` was considered and not taken. It locks a file that it makes, so every folder that is written
to, and every cache, would keep a lock file; it opens that file for writing, and a run folder from elsewhere may hold a
symbolic link of that name; and a folder that is removed and created again while a process waits for its lock would be
locked by its old name. An advisory lock (``flock``) on the folder needs none of this, and the system releases it
however the process ends.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from antiphon.exceptions import RunError
from antiphon.storage.atomic import is_same_file, lock_descriptor


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Locks the folder for this process; it is created if it does not exist.

    A folder locked by another process is an error, or with ``wait`` waited for. Folders created here are removed again
    on failure if they are empty.
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
    """Creates a folder and its parents; those that were created, the innermost first."""
    if path.exists() and not path.is_dir():
        raise RunError(f"{path}: a file, expected a folder")
    if ".." in path.parts and not path.parent.exists():  # the path depends on a folder that does not exist
        raise RunError(f"{path}: goes through a folder that does not exist, expected a path without '..'")
    missing = [folder for folder in (resolved(path), *resolved(path).parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
    return missing


def resolved(path: Path) -> Path:
    """The absolute path without symbolic links; a loop of links is refused."""
    try:
        return path.resolve()
    except RuntimeError:
        raise RunError(f"{path}: a loop of symbolic links, expected a path without one") from None


def _remove_empty(folders: list[Path]) -> None:
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()
