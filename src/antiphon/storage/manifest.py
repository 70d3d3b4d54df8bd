"""The files that a run may hold, and its manifest: format version, and size and SHA-256 of every file.

    {"files": {"recipe.toml": {"bytes": 1234, "sha256": "..."}, ...}, "removed": null, "format": 1, "sha256": "..."}

New files are written into a scratch folder inside the run, and synced. To commit the change, the scratch folder is
renamed to ``.antiphon-staged`` and the manifest replaced: while the files are moved into place, ``removed`` lists those
that are to be deleted. If that is interrupted, readers find files in ``.antiphon-staged``, and the next writer moves
them. ``sha256`` is the digest of the manifest itself without this key. Nothing is changed, recovered or cleaned up
before it is certain that the command may write: that there is no run, that ``force`` allows to replace it, or that
every file of it was verified.
"""

import os
import shutil
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import Any

from antiphon.exceptions import RunError
from antiphon.storage.files import (
    STAGED,
    Entry,
    check_format,
    digest_file,
    digest_inside,
    final_name_in_errors,
    lock_descriptor,
    new_scratch_folder,
    open_folder,
    open_regular,
    parent_of,
    parse_entries,
    parse_sealed,
    refuse_links,
    refuse_links_and_folders,
    remove_tree,
    render_sealed,
    sweep,
    sync_descriptor,
    synced_files,
    write_atomically,
)

MANIFEST = "manifest.json"
LITE_SETTINGS = "lite.json"
"""The file that lists those of an exported run, for ``antiphon.lite``."""
CHECKPOINT = "last.ckpt"
"""Read only when training is resumed."""
MEMBERS = tuple(f"member-{index}" for index in range(1, 17))
"""Folders of the runs that an ensemble is made of."""
PARTS = ("direct", "channel", "lm", *MEMBERS)
"""Folders of the runs that a noisy channel or an ensemble is made of; its direct model may be an ensemble."""

PREDICTION_FILES = (
    "recipe.toml",
    "source.vocab",
    "target.vocab",
    "features.vocab",
    "source.spm",
    "target.spm",
    "model.safetensors",
    "rules.tsv",
    "words.vocab",
    "vectors.safetensors",
    "overlap.tsv",
    "logistic.json",
    "metrics.json",
)
"""Files that prediction needs."""
REPORTS = ("log.csv", "training.png", "alignment.png")
"""Logs and pictures, which no command reads; they may be deleted."""
RUN_FILES = frozenset(
    [
        *PREDICTION_FILES,
        *REPORTS,
        CHECKPOINT,
        *(
            f"{part}/{name}"
            for part in (*PARTS, *(f"direct/{member}" for member in MEMBERS))
            for name in (*PREDICTION_FILES, *REPORTS, MANIFEST)
        ),
    ]
)
"""Every file that a manifest can list."""

FORMAT = 1
"""The format that is written, and the newest that can be read."""
MAX_MANIFEST_BYTES = 2**20
"""Far larger than any manifest."""
_MAX_READS = 1000
"""How often a run is read again because a writer is changing it."""
_PAUSE = 0.01
"""Seconds between reads, in which a writer may move files into place."""


@dataclass(frozen=True)
class Manifest:
    """The contents of a run folder; ``removed`` is None unless a change is being moved into place."""

    files: Mapping[str, Entry]
    removed: tuple[str, ...] | None = None
    format: int = FORMAT

    def is_finished(self) -> bool:
        """Whether no change is in progress: every file is in its place."""
        return self.removed is None


def holds_run(folder: Path) -> bool:
    """Whether there is a run in the folder, intact or damaged."""
    return (folder / MANIFEST).is_symlink() or (folder / MANIFEST).exists()


def state_of(folder: Path) -> tuple[int, int] | None:
    """What is another after each change of the run in the folder; None without a run."""
    try:
        found = (folder / MANIFEST).lstat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a run folder; one that is damaged, or of a newer format, is refused."""
    path = folder / MANIFEST
    with open_regular(path) as file:
        return parse_manifest(file.read(MAX_MANIFEST_BYTES), path)


def parse_manifest(content: bytes, path: Path) -> Manifest:
    """The manifest in the bytes of the file ``path``."""
    try:
        table = parse_sealed(content)
        check_format(table["format"], FORMAT, f"{path.parent}: a run")
        return _parse(table)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"{path}: damaged ({error}), expected the list of files that antiphon wrote; "
            "restore it from a copy, or train again with --force"
        ) from None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replaces the manifest atomically."""
    write_atomically(folder / MANIFEST, render_sealed(asdict(manifest)))


def read_verified(folder: Path, *, checkpoint: bool = True) -> Manifest:
    """The manifest of a run folder, after every file has been verified; the checkpoint only if it will be read.

    If the run is in training, files may change while they are read; then they are read again.
    """
    for _ in range(_MAX_READS):
        manifest = read_manifest(folder)
        if not manifest.is_finished() and is_being_moved(folder):
            time.sleep(_PAUSE)
            continue
        try:
            verify(folder, manifest, skipped=() if checkpoint else (CHECKPOINT,))
            return manifest
        except RunError:
            if read_manifest(folder) == manifest:
                raise
    raise RunError(f"{folder}: changes faster than it can be read, expected a run that is at rest")


def verify(folder: Path, manifest: Manifest, skipped: Collection[str] = ()) -> None:
    """Refuses a folder in which a file is missing, damaged, a symbolic link, or there without being listed."""
    _refuse_unlisted(folder, manifest)
    staged = None if manifest.is_finished() else staged_folder(folder)
    for name, expected in manifest.files.items():
        if name not in skipped:
            _verify_file(folder, staged, name, expected)


def _verify_file(folder: Path, staged: Path | None, name: str, expected: Entry) -> None:
    path = folder / name
    try:
        found = digest_listed(folder, staged, name)
    except FileNotFoundError:
        if name in REPORTS:
            return
        raise RunError(f"{path}: missing, expected it as in {folder / MANIFEST}") from None
    if found != expected:
        is_size = found.bytes != expected.bytes
        difference = f"{found.bytes:,} bytes instead of {expected.bytes:,}" if is_size else "its SHA-256 differs"
        raise RunError(
            f"{path}: damaged, or changed by hand ({difference}), expected the file that antiphon wrote; restore it "
            "from a copy, or train again with --force"
        )


def _refuse_unlisted(folder: Path, manifest: Manifest) -> None:
    """Refuses a file that would be read as part of the run although the manifest does not list it."""
    for name in sorted(RUN_FILES - manifest.files.keys() - {*(manifest.removed or ()), *REPORTS}):
        if Path(name).name not in (*REPORTS, MANIFEST) and (folder / name).exists():
            raise RunError(f"{folder / name}: not listed in {folder / MANIFEST}, expected no such file in this run")


def _parse(table: Mapping[str, Any]) -> Manifest:
    """The manifest of a table; names that a run cannot have are refused, so nothing outside it is touched."""
    files = parse_entries(table["files"])
    removed = None if table["removed"] is None else tuple(table["removed"])
    if unknown := [name for name in (*files, *(removed or ())) if name not in RUN_FILES]:
        raise ValueError(f"it names {unknown[0]!r}")
    return Manifest(files, removed, table["format"])


def recover(folder: Path) -> None:
    """Finishes a change that was committed and interrupted, and removes what was never committed.

    The caller must hold the lock of the folder, and have verified the run or the right to replace it.
    """
    if holds_run(folder):
        with suppress(RunError):  # a damaged one is about to be replaced
            manifest = read_manifest(folder)
            if not manifest.is_finished():
                _finish(folder, manifest)
    discard_staged(folder)
    sweep(folder)


def check_new_run(folder: Path, *, force: bool) -> None:
    """Refuses a folder that cannot take a new run.

    An existing run is refused unless ``force`` allows to replace it. Files with the names of run files that no run
    lists are refused in any case: they belong to the user.
    """
    if any("\udc80" <= character <= "\udcff" for character in str(folder)):
        raise RunError(
            f"{folder}: a name of bytes that are not UTF-8, which weights cannot have, expected another --out"
        )
    if folder.name in PARTS and holds_run(folder.parent):
        raise RunError(f"{folder}: a part of the run in {folder.parent}, expected another --out")
    if holds_run(folder) and not force:
        raise RunError(
            f"{folder}: holds a run already ({MANIFEST}), expected a new folder; antiphon train --resume continues "
            "a training, --force replaces the run, or choose another --out"
        )
    refuse_links_and_folders(folder, sorted(RUN_FILES))
    if (folder / MANIFEST).is_dir():  # a link or a pipe in its place is replaced
        raise RunError(f"{folder / MANIFEST}: a folder, expected a file of the run, or none")
    _refuse_foreign_files(folder, _names_of_old_run(folder))


def commit_new_run(folder: Path, stage: Path) -> None:
    """Makes the files in a staging folder the run in ``folder``, in place of the run there, if any."""
    recover(folder)
    old = _names_of_old_run(folder)
    _refuse_foreign_files(folder, old)
    files = _seal(stage)
    _commit(folder, stage, Manifest(files, tuple(sorted(old - files.keys()))))


def remove_run(folder: Path) -> None:
    """Removes the run in a folder, and the folder if nothing else is in it; the caller must hold its lock."""
    discard_staged(folder)
    put_in_place(folder, (), sorted(_names_of_old_run(folder)))
    (folder / MANIFEST).unlink()
    with suppress(OSError):  # other files stay
        folder.rmdir()


@contextmanager
def changed_run(folder: Path, remove: Iterable[str] = ()) -> Iterator[Path]:
    """An empty folder for files that are added to the run in ``folder``, or replaced in it, at the end.

    Files named in ``remove`` are deleted in the same change. The caller must hold the lock of the folder,
    and have verified the run.
    """
    recover(folder)
    with staging_folder(folder) as stage:
        yield stage
        old = read_manifest(folder)
        files = _seal(stage)
        removed = {*remove} & old.files.keys()
        kept = {name: entry for name, entry in old.files.items() if name not in removed}
        _commit(folder, stage, Manifest(kept | files, tuple(sorted(removed))))


def seal_run(folder: Path) -> None:
    """Writes the manifest of a folder that holds a run and nothing else."""
    write_manifest(folder, Manifest(_seal(folder)))


def _commit(folder: Path, stage: Path, manifest: Manifest) -> None:
    """Gives the staging folder its fixed name and commits the change; if that fails, nothing changes.

    An earlier change must have been moved into place.
    """
    refuse_links(folder, [*manifest.files, *(manifest.removed or ())])
    discard_staged(folder)
    stage.rename(folder / STAGED)
    with open_folder(folder) as root, parent_of(root, f"{STAGED}/any") as (staged, _):
        lock_descriptor(staged)  # so that readers wait
        try:
            write_manifest(folder, manifest)
        except BaseException:
            if not _is_pending(folder):
                discard_staged(folder)
            raise
        _finish(folder, manifest)


def _finish(folder: Path, manifest: Manifest) -> None:
    """Finishes a committed change; can be repeated from any point."""
    put_in_place(folder, manifest.files, manifest.removed or ())
    write_manifest(folder, Manifest(manifest.files))
    discard_staged(folder)


def _is_pending(folder: Path) -> bool:
    try:
        return not read_manifest(folder).is_finished()
    except FileNotFoundError:
        return False
    except RunError:  # better to leave files to clean up than to lose some
        return True


def _names_of_old_run(folder: Path) -> set[str]:
    """The files of the run in the folder; if it is damaged, everything that it could contain."""
    if not holds_run(folder):
        return set()
    try:
        old = read_manifest(folder)
    except RunError:
        return {name for name in RUN_FILES if (folder / name).exists()}
    return {*old.files, *(old.removed or ())}


def _refuse_foreign_files(folder: Path, ours: set[str]) -> None:
    for name in sorted(RUN_FILES):
        if name not in ours and ((folder / name).exists() or (folder / name).is_symlink()):
            raise RunError(
                f"{folder / name}: in the way of a new run, and not listed in a {MANIFEST} there, expected a folder "
                "without it; move it, or choose another --out"
            )


def _seal(stage: Path) -> dict[str, Entry]:
    """Syncs everything in a folder; gives the digests of its files, but for the manifest of a run trained in it."""
    return {name: digest_file(path) for name, path in synced_files(stage).items() if name != MANIFEST}


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


def put_in_place(folder: Path, files: Collection[str], removed: Collection[str] = ()) -> None:
    """Moves staged files into place and deletes what was removed; can be repeated from any point."""
    refuse_links_and_folders(folder, [*files, *removed])
    with open_folder(folder) as root:
        if _is_there(root, STAGED):
            with parent_of(root, f"{STAGED}/any") as (staged, _):
                lock_descriptor(staged)
                _move(staged, root, files)
        for name in removed:
            with suppress(FileNotFoundError), parent_of(root, name) as (parent, last):
                _remove(parent, last)
        _remove_empty_parents(root, removed)
        sync_descriptor(root)


def _move(staged: int, root: int, files: Iterable[str]) -> None:
    waiting = [name for name in files if _is_there(staged, name)]
    for name in waiting:
        with parent_of(staged, name) as (source, last), parent_of(root, name, create=True) as (target, _):
            os.rename(last, last, src_dir_fd=source, dst_dir_fd=target)
    for name in {PurePath(name).parent: name for name in waiting}.values():
        with parent_of(root, name) as (target, _):
            sync_descriptor(target)


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
