"""The manifest of a run folder: its format version, and size and SHA-256 of every file.

    {"files": {"recipe.toml": {"bytes": 1234, "sha256": "..."}, ...}, "folders": ["corpus"],
     "staged": null, "removed": [], "format": 1, "sha256": "..."}

A change of the run is committed by replacing the manifest: ``staged`` then names a folder inside the run with new
files that are still to be moved into place, and ``removed`` lists files that are still to be deleted. ``sha256`` is the
digest of the manifest itself without this key.
"""

import errno
import hashlib
import io
import os
import stat
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from antiphon.exceptions import RunError
from antiphon.storage.atomic import is_in_use, is_scratch, write_atomically
from antiphon.storage.layout import FOLDERS, MANIFEST, REPORTS, RUN_FILES
from antiphon.storage.migrations import FORMAT, check_format
from antiphon.storage.sealed_json import parse_sealed, render_sealed

MAX_MANIFEST_BYTES = 2**20
"""Far larger than any manifest."""
_MAX_READS = 1000
"""How often a run is read again because a writer is changing it."""
_PAUSE = 0.01
"""Seconds between reads, in which a writer may move files into place."""


@dataclass(frozen=True)
class Entry:
    """Size and digest of a file."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The contents of a run folder."""

    files: Mapping[str, Entry]
    folders: tuple[str, ...] = ()
    staged: str | None = None
    removed: tuple[str, ...] = ()
    format: int = FORMAT

    def is_finished(self) -> bool:
        """Whether no change is in progress: every file is in its place."""
        return self.staged is None and not self.removed


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a run folder; one that is damaged, or of a newer format, is refused."""
    path = folder / MANIFEST
    with open_regular(path) as file:
        return parse_manifest(file.read(MAX_MANIFEST_BYTES), path)


def parse_manifest(content: bytes, path: Path) -> Manifest:
    """The manifest in the bytes of the file ``path``."""
    try:
        table = parse_sealed(content)
        check_format(table["format"], path.parent)
        return _parse(table)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"{path}: damaged ({error}), expected the list of files that antiphon wrote; "
            "restore it from a copy, or train again with --force"
        ) from None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replaces the manifest atomically."""
    write_atomically(folder / MANIFEST, render_sealed(asdict(manifest)))


def read_verified(folder: Path) -> Manifest:
    """The manifest of a run folder, after every file has been verified.

    If the run is in training, files may change while they are read; then they are read again.
    """
    for _ in range(_MAX_READS):
        manifest = read_manifest(folder)
        if manifest.staged is not None and is_in_use(folder / manifest.staged):
            time.sleep(_PAUSE)
            continue
        try:
            verify(folder, manifest)
            return manifest
        except RunError:
            if read_manifest(folder) == manifest:
                raise
    raise RunError(f"{folder}: changes faster than it can be read, expected a run that is at rest")


def verify(folder: Path, manifest: Manifest) -> None:
    """Refuses a folder in which a file is missing, damaged, a symbolic link, or there without being listed."""
    _refuse_unlisted(folder, manifest)
    for name, expected in manifest.files.items():
        path = folder / name
        refuse_links(folder, [name])
        try:
            found = _digest_listed(folder, manifest, name)
        except FileNotFoundError:
            if name in REPORTS:
                continue
            raise RunError(f"{path}: missing, expected it as in {folder / MANIFEST}") from None
        if found != expected:
            raise RunError(
                f"{path}: damaged, or changed by hand ({_difference(found, expected)}), expected the file that "
                "antiphon wrote; restore it from a copy, or train again with --force"
            )


def _refuse_unlisted(folder: Path, manifest: Manifest) -> None:
    """Refuses a file that would be read as part of the run although the manifest does not list it."""
    for name in sorted(RUN_FILES - manifest.files.keys() - {*manifest.removed, *REPORTS}):
        if Path(name).name not in (*REPORTS, MANIFEST) and (folder / name).exists():
            raise RunError(f"{folder / name}: not listed in {folder / MANIFEST}, expected no such file in this run")


def digest_file(path: Path) -> Entry:
    """Size and SHA-256 of a file."""
    with open_regular(path) as file:
        return _digest(file)


def open_regular(path: Path) -> io.BufferedReader:
    """An open file; symbolic links, pipes, devices and folders are refused."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise RunError(f"{path}: a symbolic link, expected a file of the run itself") from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RunError(f"{path}: not a regular file, expected a file of a run")
    return os.fdopen(descriptor, "rb")


def refuse_links(folder: Path, names: Iterable[str]) -> None:
    """Refuses a run folder in which one of these names is a symbolic link."""
    for name in names:
        parts = Path(name).parts
        for length in range(1, len(parts) + 1):
            path = folder.joinpath(*parts[:length])
            if path.is_symlink():
                raise RunError(f"{path}: a symbolic link, expected a file or folder of the run itself")


def _digest_listed(folder: Path, manifest: Manifest, name: str) -> Entry:
    """Size and SHA-256 of a file in the staging folder, or in its final location."""
    if manifest.staged is not None:
        try:
            return digest_file(folder / manifest.staged / name)
        except FileNotFoundError:
            pass
    return digest_file(folder / name)


def _digest(file: io.BufferedReader) -> Entry:
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Entry(os.fstat(file.fileno()).st_size, digest)


def _difference(found: Entry, expected: Entry) -> str:
    if found.bytes != expected.bytes:
        return f"{found.bytes:,} bytes instead of {expected.bytes:,}"
    return "its SHA-256 differs"


def _parse(table: Mapping[str, Any]) -> Manifest:
    """The manifest of a table; names that a run cannot have are refused, so nothing outside it is touched."""
    files = {name: Entry(int(entry["bytes"]), str(entry["sha256"])) for name, entry in table["files"].items()}
    folders, removed, staged = tuple(table["folders"]), tuple(table["removed"]), table["staged"]
    unknown = [name for name in (*files, *removed) if name not in RUN_FILES and name not in FOLDERS]
    unknown += [name for name in folders if name not in FOLDERS]
    unknown += [staged] if staged is not None and not is_scratch(Path(str(staged))) else []
    if unknown:
        raise ValueError(f"it names {unknown[0]!r}")
    return Manifest(files, folders, staged, removed, int(table["format"]))
