"""Atomic writes: a file is replaced completely or not at all.

The name of an unfinished file or folder says which process on which machine writes it. So leftovers of killed processes
are recognised without locks, which some network file systems do not have, or give to every machine.
"""

import errno
import fcntl
import hashlib
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

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
        sync_folder(path.parent)


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


def sync_folder(path: Path) -> None:
    """Syncs the directory entries of a folder, if the file system can."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync_descriptor(descriptor)
    finally:
        os.close(descriptor)


def sync_descriptor(descriptor: int) -> None:
    """Syncs the directory entries of an open folder, if the file system can."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise


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
        return True
    return True
