"""Packed runs: one zip file that holds the files of a run folder.

Files are stored without compression, in the order of their names and without times, so that the same run always gives
the same bytes, and a packed run never unpacks to more than its own size: a file that claims otherwise is refused.
Nothing is written but files that a run can hold, each after its size was compared with the manifest's; their digests
are computed as they are written. The copy lives in the folder for temporary files as long as something refers to it.
"""

import hashlib
import shutil
import stat
import struct
import tempfile
import weakref
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from antiphon.exceptions import RunError
from antiphon.storage.atomic import atomic_replacement, final_name_in_errors, new_scratch_folder, remove_tree, sweep
from antiphon.storage.manifest import MANIFEST, MAX_MANIFEST_BYTES, Manifest, holds_run, parse_manifest
from antiphon.storage.staging import Entry

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of every file in a packed run: the earliest that a zip file can hold."""
_CHUNK = 2**20
_UNREADABLE = (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, struct.error)
"""What ``zipfile`` raises for damaged files."""
_EXPECTED = "expected a run folder, or a file that antiphon pack made"


def pack_folder(folder: Path, out: Path) -> None:
    """Writes a folder that holds a run and nothing else into one file, the manifest first, all or nothing."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    with atomic_replacement(out) as new, zipfile.ZipFile(new, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(names, key=lambda name: name != MANIFEST):
            _add(archive, name, folder / name)


def _add(archive: zipfile.ZipFile, name: str, path: Path) -> None:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.create_system = 3  # Unix, whatever the machine is
    info.external_attr = (stat.S_IFREG | 0o644) << 16
    info.file_size = path.stat().st_size
    with path.open("rb") as content, archive.open(info, "w") as packed:
        shutil.copyfileobj(content, packed, _CHUNK)


def is_packed_run(path: Path) -> bool:
    """Whether a file is a zip file with the manifest of a run, damaged or not."""
    try:
        with zipfile.ZipFile(path) as archive:
            return MANIFEST in archive.namelist()
    except (*_UNREADABLE, OSError):
        return False


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A private folder among temporary files, removed at the end; those that killed processes left are removed too."""
    parent = Path(tempfile.gettempdir())
    if not holds_run(parent):  # there, a folder with such a name may hold files of the run
        sweep(parent)
    folder = new_scratch_folder(parent, mode=0o700)
    try:
        yield folder
    finally:
        remove_tree(folder)


class UnpackedRun:
    """The files of a packed run in a folder of their own, which is removed once nothing refers to it."""

    def __init__(self, packed: Path) -> None:
        held = ExitStack()
        weakref.finalize(self, held.close)
        self.folder = held.enter_context(temporary_folder())
        try:
            with final_name_in_errors(self.folder.parent):
                _unpack(packed, self.folder)
        except _UNREADABLE as error:
            raise RunError(f"{packed}: not a packed run, or damaged ({error}), {_EXPECTED}") from None


_unpacked: "weakref.WeakValueDictionary[tuple[object, ...], UnpackedRun]" = weakref.WeakValueDictionary()


def unpacked_run(packed: Path) -> UnpackedRun:
    """The unpacked files of a packed run; while they are in use, the same file is not unpacked again."""
    found = packed.stat()
    key = packed.resolve(), found.st_ino, found.st_size, found.st_mtime_ns
    run = _unpacked.get(key) or UnpackedRun(packed)
    _unpacked[key] = run
    return run


def _unpack(packed: Path, folder: Path) -> None:
    with packed.open("rb") as file, zipfile.ZipFile(file) as archive:
        entries = _entries(archive, packed)
        if MANIFEST not in entries:
            raise RunError(f"{packed}: no {MANIFEST} in it, {_EXPECTED}")
        with archive.open(entries[MANIFEST]) as content:
            listed = content.read(MAX_MANIFEST_BYTES)
        manifest = parse_manifest(listed, packed / MANIFEST)
        _compare(packed, entries, manifest)
        (folder / MANIFEST).write_bytes(listed)
        for name, expected in manifest.files.items():
            with archive.open(entries[name]) as content:
                _extract(content, folder / name, expected, packed / name)


def _entries(archive: zipfile.ZipFile, packed: Path) -> dict[str, zipfile.ZipInfo]:
    """The entries of a packed run by name; anything that ``pack_folder`` never writes is refused."""
    entries: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        _refuse_foreign(info, packed)
        if info.filename in entries:
            raise RunError(f"{packed}: holds {info.filename} twice, {_EXPECTED}")
        entries[info.filename] = info
    total, size = sum(info.file_size for info in entries.values()), packed.stat().st_size
    if total > size:
        raise RunError(f"{packed}: unpacks to {total:,} bytes, more than the {size:,} bytes of the file, {_EXPECTED}")
    return entries


def _refuse_foreign(info: zipfile.ZipInfo, packed: Path) -> None:
    name, kind = info.filename, stat.S_IFMT(info.external_attr >> 16)
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\\" in name:
        raise RunError(f"{packed}: holds {name!r}, a path that leaves the folder of the run, {_EXPECTED}")
    if kind not in (0, stat.S_IFREG):
        raise RunError(f"{packed}: {name!r} in it is not a regular file, {_EXPECTED}")
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 or info.file_size != info.compress_size:
        raise RunError(f"{packed}: {name!r} in it is compressed or encrypted, {_EXPECTED}")


def _compare(packed: Path, entries: Iterable[str], manifest: Manifest) -> None:
    """Refuses a packed run whose files differ from those that its manifest lists."""
    found, listed = {*entries} - {MANIFEST}, {*manifest.files}
    if found != listed or manifest.folders or not manifest.is_finished():
        different = sorted(found ^ listed) or [MANIFEST]
        raise RunError(f"{packed}: its files differ from those that its manifest lists ({different[0]!r}), {_EXPECTED}")


def _extract(content: IO[bytes], path: Path, expected: Entry, shown: Path) -> None:
    """Writes one file, at most as many bytes as the manifest says, and compares its size and digest with it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    digest, left = hashlib.sha256(), expected.bytes
    with path.open("xb") as file:
        while left >= 0 and (chunk := content.read(_CHUNK)):
            left -= len(chunk)
            digest.update(chunk)
            file.write(chunk)
    if left or digest.hexdigest() != expected.sha256:
        raise RunError(f"{shown}: damaged, or changed by hand, expected the file that antiphon packed; pack it again")
