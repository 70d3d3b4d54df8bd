"""Atomic writes, of a file completely or not at all, and one writer at a time in a folder.

The name of an unfinished file or folder says which process on which machine writes it. So leftovers of killed processes
are recognised without locks, which some network file systems do not have, or give to every machine.

A lock is an advisory one (``flock``) on the folder itself: no lock file stays behind, nothing inside a folder from
elsewhere is opened for it, and the system releases it however the process ends. The library ``filelock`` makes a file.
"""

import errno
import fcntl
import hashlib
import os
import platform
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from antiphon.exceptions import RunError

STAGED = ".antiphon-staged"
"""The folder inside a run or an exported run whose files are being moved into place."""
_SCRATCH = re.compile(r"\.antiphon-([0-9a-f]{8})-([0-9]{1,9})-[0-9a-f]{16}")
"""Names of unfinished files and folders: a machine, a process and a random number, unlikely to be a user's."""
_ABANDONED_AFTER = 7 * 24 * 3600
"""Seconds without a change after which an unfinished file of another machine counts as abandoned."""


def scratch_name() -> str:
    """A new name for an unfinished file or folder of this process."""
    return f".antiphon-{_machine()}-{os.getpid()}-{secrets.token_hex(8)}"


def is_unfinished(path: Path | str) -> bool:
    """Whether a name is that of an unfinished file or folder, of whichever process."""
    name = Path(path).name
    return name == STAGED or _SCRATCH.fullmatch(name) is not None


def final_location(path: Path) -> Path:
    """Where a file in an unfinished folder inside a run will be once the folder's contents are moved into place."""
    absolute = path.absolute()
    return Path(absolute.anchor, *(part for part in absolute.parts[1:] if not is_unfinished(part)))


@contextmanager
def atomic_replacement(path: Path) -> Iterator[Path]:
    """A new file next to ``path`` that replaces it once it is written and synced.

    If writing fails, the file at ``path`` stays. A symbolic link there is replaced, never followed. Unfinished files of
    killed processes in the folder are removed.
    """
    sweep(path.parent, folders=False)
    with final_name_in_errors(path):
        temporary = path.parent / scratch_name()
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)  # the mode follows the umask
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
        sync_path(path.parent)


@contextmanager
def final_name_in_errors(path: Path) -> Iterator[None]:
    """Inside, an ``OSError`` that names no file, or an unfinished one, names ``path`` instead."""
    try:
        yield
    except OSError as error:
        if error.filename is None or is_unfinished(os.fsdecode(error.filename)):
            error.filename, error.filename2 = str(path), None
        raise


def write_atomically(path: Path, text: str) -> None:
    """Replaces a text file atomically."""
    with atomic_replacement(path) as new:
        new.write_text(text, encoding="utf-8", newline="\n")


def new_scratch_folder(parent: Path, mode: int = 0o777) -> Path:
    """A new folder inside ``parent``, which ``sweep`` keeps as long as this process lives."""
    folder = parent / scratch_name()
    folder.mkdir(mode)
    return folder


def sweep(folder: Path, *, folders: bool = True) -> None:
    """Removes unfinished files of killed processes in a folder; those of live processes stay."""
    with suppress(OSError):
        for path in folder.iterdir():
            if _is_abandoned(path) and (folders or not path.is_dir()):
                with suppress(OSError):
                    remove_tree(path)


def remove_tree(path: Path) -> None:
    """Removes a file or folder with its contents, if it exists; of a symbolic link only the link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync_path(path: Path) -> None:
    """Syncs a file, or the directory entries of a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync_descriptor(descriptor)
    finally:
        os.close(descriptor)


def sync_descriptor(descriptor: int) -> None:
    """Syncs an open file, or the directory entries of an open folder if the file system can."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        if not is_folder or error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise


@cache
def _machine() -> str:
    """A digest of all that process ids depend on: the host, its last start and, in a container, the container."""
    known = [platform.node()]
    with suppress(OSError):
        known += [Path("/proc/sys/kernel/random/boot_id").read_text(), str(Path("/proc/self/ns/pid").readlink())]
    return hashlib.sha256("\n".join(known).encode(errors="replace")).hexdigest()[:8]


def _is_abandoned(path: Path) -> bool:
    """Whether the process that wrote an unfinished file has ended; of one on another machine only the age is known."""
    found = _SCRATCH.fullmatch(path.name)
    if found is None or path.is_symlink():
        return False
    machine, process = found.groups()
    if machine == _machine():
        return not _is_alive(int(process))
    return time.time() - max(each.lstat().st_mtime for each in (path, *path.rglob("*"))) > _ABANDONED_AFTER


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # a process of another user
        pass
    return True


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
            if not _is_same_file(descriptor, path):
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


def _is_same_file(descriptor: int, path: Path) -> bool:
    """Whether an open file is still the one at ``path``."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
