"""Atomic writes, of a file completely or not at all, and one writer at a time in a folder.

The name of an unfinished file or folder says which process on which machine writes it. So leftovers of killed processes
are recognised without locks, which some network file systems do not have, or give to every machine.

A lock is an advisory one (``flock``) on the folder itself: no lock file stays behind, nothing inside a folder from
elsewhere is opened for it, and the system releases it however the process ends. The library ``filelock`` makes a file.

A folder may come from elsewhere: everything in it is opened relative to open folders, without following symbolic links,
and verified by its digest. The file that lists the others is sealed: a JSON object with its own SHA-256.
"""

import errno
import fcntl
import hashlib
import io
import json
import os
import platform
import re
import secrets
import shutil
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath
from typing import Any

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


def new_scratch_folder(parent: Path) -> Path:
    """A new folder inside ``parent``, which ``sweep`` keeps as long as this process lives."""
    folder = parent / scratch_name()
    folder.mkdir()
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
        made = make_folders(path)
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
            remove_empty(made)
            raise
        finally:
            os.close(descriptor)


def make_folders(path: Path) -> list[Path]:
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


def beside(folder: Path, what: str) -> Path:
    """A folder beside another for what belongs to it: ``runs/a-pairs`` of ``runs/a``."""
    named = folder if folder.name not in ("", "..") else resolved(folder)
    if not named.name:
        raise RunError(f"{folder}: has no folder beside it, expected another one")
    return named.with_name(f"{named.name}-{what}")


def remove_empty(folders: Iterable[Path]) -> None:
    """Removes folders, the innermost first, as long as they are empty."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _is_same_file(descriptor: int, path: Path) -> bool:
    """Whether an open file is still the one at ``path``."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_SETTLED_SECONDS = 2.0
"""Age from which a changed file certainly has another time: file systems count time in steps."""


@dataclass(frozen=True)
class Entry:
    """Size and digest of a file."""

    bytes: int
    sha256: str


FileState = tuple[int, ...]
"""Device, number, size and times of a file: the same as long as it is not changed."""
_known: dict[FileState, Entry] = {}
"""Digests that this process has computed."""


def digest_file(path: Path) -> Entry:
    """Size and SHA-256 of a file."""
    with open_regular(path) as file:
        return _digest(file)


def _digest(file: io.BufferedReader) -> Entry:
    """Size and SHA-256 of an open file; one that has not changed since is read only once in a process."""
    found = os.fstat(file.fileno())
    state = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    if state in _known:
        return _known[state]
    entry = Entry(found.st_size, hashlib.file_digest(file, "sha256").hexdigest())
    if time.time() - max(found.st_mtime, found.st_ctime) > _SETTLED_SECONDS:
        _known[state] = entry
    return entry


def digest_inside(folder: Path, name: str) -> Entry:
    """Size and SHA-256 of the file ``name`` below a folder."""
    refuse_links(folder, [name])
    with (
        open_folder(folder) as root,
        parent_of(root, name) as (parent, _),
        open_regular(folder / name, parent) as file,
    ):
        return _digest(file)


def open_regular(path: Path, parent: int | None = None) -> io.BufferedReader:
    """An open file; symbolic links, pipes, devices and folders are refused. ``parent`` is its open folder."""
    try:
        name = path if parent is None else path.name
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise RunError(f"{path}: a symbolic link, expected a file of the run itself") from None
        error.filename = str(path)
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RunError(f"{path}: not a regular file, expected a file of a run")
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, limit: int) -> str:
    """The text of a file of a run; a larger one is a ``ValueError``."""
    with open_regular(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"more than {limit:,} bytes")
    return content.decode("utf-8")


@contextmanager
def open_folder(path: Path) -> Iterator[int]:
    """The descriptor of a folder that the user named; it may be a symbolic link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def parent_of(root: int, name: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
    """The open folder that holds ``name`` below an open folder, reached without following links, and its last part."""
    *parents, last = PurePath(name).parts
    with ExitStack() as held:
        for parent in parents:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(parent, dir_fd=root)
            root = os.open(parent, _FOLDER, dir_fd=root)
            held.callback(os.close, root)
        yield root, last


def refuse_links(folder: Path, names: Iterable[str]) -> None:
    """Refuses a folder in which one of these names, or a folder on the way to it, is a symbolic link."""
    for name in names:
        parts = PurePath(name).parts
        for length in range(1, len(parts) + 1):
            path = folder.joinpath(*parts[:length])
            if path.is_symlink():
                raise RunError(f"{path}: a symbolic link, expected a file or folder of the run itself")


def refuse_links_and_folders(folder: Path, names: Collection[str]) -> None:
    """Refuses a folder in which one of these files, in its place or among staged files, is a link or a folder."""
    every = [*names, *(f"{STAGED}/{name}" for name in names)]
    refuse_links(folder, every)
    for path in (folder / name for name in every):
        if path.is_dir():
            raise RunError(f"{path}: a folder, expected a file of the run, or none")


def render_sealed(table: Mapping[str, Any]) -> str:
    """A JSON object as text, with its digest under the key ``sha256``."""
    rest = {name: value for name, value in table.items() if name != "sha256"}
    digest = hashlib.sha256(json.dumps(rest).encode()).hexdigest()
    return json.dumps(rest | {"sha256": digest}, indent=2) + "\n"


def parse_sealed(content: bytes) -> dict[str, Any]:
    """The object that ``render_sealed`` wrote; anything else is a ``ValueError`` that says why."""
    try:
        table = json.loads(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(table, dict):
        raise ValueError("not a JSON object")
    if content != render_sealed(table).encode():
        raise ValueError("its SHA-256 differs")
    return table


def check_format(version: object, newest: int, what: str) -> None:
    """Refuses a format that is newer than this program, and as a ``ValueError`` one that is none."""
    if not isinstance(version, int) or version < 1:
        raise ValueError(f"format {version!r}")
    if version > newest:
        raise RunError(
            f"{what} of format {version}, expected at most {newest}; it was written by a newer antiphon: install that "
            "one"
        )


def parse_entries(table: Mapping[str, Mapping[str, object]]) -> dict[str, Entry]:
    """The sizes and digests of a JSON object; anything else is a ``ValueError``."""
    entries = {}
    for name, entry in table.items():
        size, digest = entry["bytes"], entry["sha256"]
        if not isinstance(size, int) or not isinstance(digest, str):
            raise ValueError(f"{name!r} has no size and SHA-256")
        entries[name] = Entry(size, digest)
    return entries


def synced_files(stage: Path) -> dict[str, Path]:
    """Every file under a staging folder by its relative name, synced and with the mode of new files."""
    mode = stage.stat().st_mode & 0o666
    paths = sorted(stage.rglob("*"))
    refuse_links(stage, [str(path.relative_to(stage)) for path in paths])
    for path in paths:
        if path.is_file() and path.stat().st_mode & 0o777 != mode:
            path.chmod(mode)
        sync_path(path)
    sync_path(stage)
    return {str(path.relative_to(stage)): path for path in paths if path.is_file()}
