"""Files of a folder from elsewhere: reached without following symbolic links, and verified by their digests.

The file that lists all others is sealed: a JSON object with its own SHA-256.
"""

import errno
import hashlib
import io
import json
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from antiphon.exceptions import RunError

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
