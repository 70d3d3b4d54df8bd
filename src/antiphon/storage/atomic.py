"""Atomic writes: a file is replaced completely or not at all."""

import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SCRATCH = re.compile(r"\.antiphon-[0-9a-f]{16}")
"""Names of unfinished files and folders, unlikely to be a user's."""


def scratch_name() -> str:
    """A new name for an unfinished file or folder."""
    return f".antiphon-{secrets.token_hex(8)}"


def is_scratch(path: Path) -> bool:
    """Whether a file or folder is an unfinished one of ours."""
    return _SCRATCH.fullmatch(path.name) is not None and not path.is_symlink()


def final_location(path: Path) -> Path:
    """Where a file in an unfinished folder inside a run will be once the folder's contents are moved into place."""
    return Path(*(part for part in path.absolute().parts if not _SCRATCH.fullmatch(part)))


@contextmanager
def atomic_replacement(path: Path) -> Iterator[Path]:
    """A new file next to ``path`` that replaces it once it is written and synced.

    If writing fails, the file at ``path`` stays. A symbolic link there is replaced, never followed. Unfinished files of
    killed processes in the folder are removed.
    """
    sweep(path.parent, folders=False)
    with final_name_in_errors(path):
        temporary, descriptor = _open_temporary(path.parent)
        try:
            yield temporary
            os.fsync(descriptor)
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        sync_folder(path.parent)


@contextmanager
def final_name_in_errors(path: Path) -> Iterator[None]:
    """Inside, an ``OSError`` that names no file, or an unfinished one, names ``path`` instead."""
    try:
        yield
    except OSError as error:
        if error.filename is None or _SCRATCH.fullmatch(Path(os.fsdecode(error.filename)).name):
            error.filename, error.filename2 = str(path), None
        raise


def write_atomically(path: Path, text: str) -> None:
    """Replaces a text file atomically."""
    with atomic_replacement(path) as new:
        new.write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def scratch_folder(parent: Path, mode: int = 0o777) -> Iterator[Path]:
    """A new folder inside ``parent``; while it is in use, ``sweep`` keeps it. It is not removed at the end."""
    while True:
        folder = parent / scratch_name()
        folder.mkdir(mode)
        descriptor = os.open(folder, os.O_RDONLY)
        if lock_descriptor(descriptor, wait=True) and is_same_file(descriptor, folder):
            break
        os.close(descriptor)
    try:
        yield folder
    finally:
        os.close(descriptor)


def sweep(folder: Path, *, folders: bool = True) -> None:
    """Removes unfinished files of killed processes in a folder; those of live processes stay."""
    with suppress(OSError):
        for path in folder.iterdir():
            if is_scratch(path) and (folders or not path.is_dir()):
                _remove_if_abandoned(path)


def is_in_use(path: Path) -> bool:
    """Whether a live process is writing an unfinished file or folder; one that is gone has just been finished."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return True
    try:
        return not lock_descriptor(descriptor)
    finally:
        os.close(descriptor)


def remove_tree(path: Path) -> None:
    """Removes a file or folder with its contents, if it exists; of a symbolic link only the link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """Syncs the directory entries of a folder, if the file system can."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def sync_path(path: Path) -> None:
    """Syncs a file, or the directory entries of a folder."""
    if path.is_dir():
        sync_folder(path)
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_descriptor(descriptor: int, *, wait: bool = False) -> bool:
    """Whether this process got an exclusive lock on the file; it ends with the process.

    On network file systems without locks every process succeeds.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
    return True


def is_same_file(descriptor: int, path: Path) -> bool:
    """Whether an open file is still the one at ``path``."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _open_temporary(folder: Path) -> tuple[Path, int]:
    """A new locked file; its mode follows the umask."""
    while True:
        path = folder / scratch_name()
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        if lock_descriptor(descriptor, wait=True) and is_same_file(descriptor, path):
            return path, descriptor
        os.close(descriptor)


def _remove_if_abandoned(path: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if lock_descriptor(descriptor):
                remove_tree(path)
        finally:
            os.close(descriptor)
