"""Changes of a folder, whole or not at all, whatever stops the writer; for runs and for exported runs.

New files are written into a scratch folder inside the folder that they belong to, and synced. To commit the change, the
scratch folder is renamed to ``.antiphon-staged``, and one file that lists all others (``manifest.json``, ``lite.json``)
is replaced atomically: it then says that a change is being moved into place. If that is interrupted, readers find files
in ``.antiphon-staged``, and the next writer moves them.

The folder may come from elsewhere. So the staging folder has one fixed name, files have names that the program knows,
and everything is opened relative to open folders, without following symbolic links. Files are verified by their
digests; the file that lists them is sealed: a JSON object with its own SHA-256.
"""

import errno
import hashlib
import io
import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from antiphon.exceptions import RunError
from antiphon.storage.atomic import (
    STAGED,
    final_name_in_errors,
    lock_descriptor,
    new_scratch_folder,
    remove_tree,
    sweep,
    sync_descriptor,
    sync_path,
)

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
"""Digests that this process has computed, or was given by the process that started it."""


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


def known_digests() -> tuple[tuple[FileState, Entry], ...]:
    """All digests that this process knows, for ``trust_digests`` in a process that it starts."""
    return tuple(_known.items())


def trust_digests(digests: Iterable[tuple[FileState, Entry]]) -> None:
    """Takes over the digests of the process that started this one."""
    _known.update(digests)


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


def refuse_all_links(folder: Path, names: Collection[str]) -> None:
    """Refuses a folder in which one of these names is a symbolic link, in its place or among staged files."""
    refuse_links(folder, [*names, *(f"{STAGED}/{name}" for name in names)])


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


@contextmanager
def staging_folder(folder: Path) -> Iterator[Path]:
    """A new folder inside ``folder`` for the files of a change; it is removed at the end unless it was committed."""
    sweep(folder)
    with final_name_in_errors(folder):
        stage = new_scratch_folder(folder)
        try:
            yield stage
        finally:
            with suppress(OSError):
                remove_tree(stage)


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


def commit_staged(
    folder: Path,
    stage: Path,
    *,
    commit: Callable[[], None],
    is_committed: Callable[[], bool],
    finish: Callable[[], None],
) -> None:
    """Gives the staging folder its fixed name and calls ``commit`` and ``finish``; if the first fails, nothing changes.

    An earlier change must have been moved into place.
    """
    discard_staged(folder)
    stage.rename(folder / STAGED)
    with open_folder(folder) as root, parent_of(root, f"{STAGED}/any") as (staged, _):
        lock_descriptor(staged)  # so that readers wait
        try:
            commit()
        except BaseException:
            if not is_committed():
                discard_staged(folder)
            raise
        finish()


def discard_staged(folder: Path) -> None:
    """Removes files that were staged and never committed, or that have been moved into place."""
    refuse_links(folder, [STAGED])
    with open_folder(folder) as root:
        _remove(root, STAGED)


def staged_folder(folder: Path) -> Path | None:
    """The folder of staged files, if there is one; a symbolic link is refused."""
    refuse_links(folder, [STAGED])
    return folder / STAGED if (folder / STAGED).is_dir() else None


def digest_listed(folder: Path, staged: Path | None, name: str) -> Entry:
    """Size and SHA-256 of a file, which is in the folder of staged files or in its place."""
    if staged is not None:
        with suppress(FileNotFoundError):
            return digest_inside(staged, name)
    return digest_inside(folder, name)


def is_being_moved(folder: Path) -> bool:
    """Whether a live process is moving staged files into place; on file systems without locks it cannot be seen."""
    try:
        descriptor = os.open(folder / STAGED, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return not lock_descriptor(descriptor)
    finally:
        os.close(descriptor)


def put_in_place(
    folder: Path, files: Collection[str], folders: Collection[str] = (), removed: Collection[str] = ()
) -> None:
    """Moves staged files and folders into place and deletes what was removed; can be repeated from any point."""
    refuse_all_links(folder, [*files, *folders, *removed])
    with open_folder(folder) as root:
        if _is_there(root, STAGED):
            with parent_of(root, f"{STAGED}/any") as (staged, _):
                lock_descriptor(staged)
                _move(staged, root, files, folders)
        for name in removed:
            with suppress(FileNotFoundError), parent_of(root, name) as (parent, last):
                _remove(parent, last)
        _remove_empty_parents(root, removed)
        sync_descriptor(root)


def _move(staged: int, root: int, files: Iterable[str], folders: Iterable[str]) -> None:
    waiting = [name for name in files if _is_there(staged, name)]
    for name in waiting:
        with parent_of(staged, name) as (source, last), parent_of(root, name, create=True) as (target, _):
            os.rename(last, last, src_dir_fd=source, dst_dir_fd=target)
    for name in {PurePath(name).parent: name for name in waiting}.values():
        with parent_of(root, name) as (target, _):
            sync_descriptor(target)
    for name in folders:
        if _is_there(staged, name):
            _remove(root, name)
            os.rename(name, name, src_dir_fd=staged, dst_dir_fd=root)


def _is_there(root: int, name: str) -> bool:
    try:
        with parent_of(root, name) as (parent, last):
            os.stat(last, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _remove(folder: int, name: str) -> None:
    """Removes a file or folder with its contents, if it exists; of a symbolic link only the link."""
    try:
        is_folder = stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return
    if is_folder:
        shutil.rmtree(name, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)


def _remove_empty_parents(root: int, names: Iterable[str]) -> None:
    parents = {str(parent) for name in names for parent in PurePath(name).parents if parent.name}
    for parent in sorted(parents, reverse=True):  # inner folders first
        with suppress(OSError), parent_of(root, parent) as (above, last):
            os.rmdir(last, dir_fd=above)
