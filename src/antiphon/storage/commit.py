"""Atomic changes of a run folder, safe against crashes at any point.

New files wait in a staging folder inside the run (``staging``). One rename, of the manifest, commits them. Before it
the run is the old one, after it the new one.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from antiphon.exceptions import RunError
from antiphon.storage.atomic import remove_tree, sweep
from antiphon.storage.layout import FOLDERS, MANIFEST, PARTS, RUN_FILES
from antiphon.storage.manifest import Entry, Manifest, digest_file, read_manifest, refuse_links, write_manifest
from antiphon.storage.staging import put_in_place, staging_folder, synced_files


def holds_run(folder: Path) -> bool:
    """Whether there is a run in the folder, intact or damaged."""
    return (folder / MANIFEST).is_symlink() or (folder / MANIFEST).exists()


def recover(folder: Path) -> None:
    """Finishes a change that was committed and interrupted, and removes what was never committed.

    The caller must hold the lock of the folder.
    """
    if holds_run(folder):
        with suppress(RunError):  # damage is reported when the run is read
            manifest = read_manifest(folder)
            if not manifest.is_finished():
                _finish(folder, manifest)
    sweep(folder)


@contextmanager
def replaced_run(folder: Path, *, force: bool) -> Iterator[Path]:
    """An empty folder for a new run that replaces the run in ``folder``, if any, at the end.

    An existing run is refused, or replaced with ``force``. Files with the names of run files
    that no run lists are refused in any case: they belong to the user.
    """
    if folder.name in (*PARTS, *FOLDERS) and holds_run(folder.parent):
        raise RunError(f"{folder}: a part of the run in {folder.parent}, expected another --out")
    old = _old_run(folder)
    if old is not None and not force:
        raise RunError(
            f"{folder}: holds a run already ({MANIFEST}), expected a new folder; antiphon train --resume continues "
            "a training, --force replaces the run, or choose another --out"
        )
    _refuse_foreign_files(folder, old)
    with staging_folder(folder, partial(_is_committed, folder)) as stage:
        yield stage
        files, folders = _seal(stage)
        old_names = {*old.files, *old.folders} if old is not None else set()
        removed = sorted(old_names - {*files, *folders})
        _commit(folder, Manifest(files, folders, stage.name, tuple(removed)))


@contextmanager
def changed_run(folder: Path, remove: Iterable[str] = ()) -> Iterator[Path]:
    """An empty folder for files that are added to the run in ``folder``, or replaced in it, at the end.

    Files and folders named in ``remove`` are deleted in the same change.
    """
    with staging_folder(folder, partial(_is_committed, folder)) as stage:
        yield stage
        old = read_manifest(folder)
        files, folders = _seal(stage)
        removed = {name for name in remove if name in old.files or name in old.folders}
        kept = {name: entry for name, entry in old.files.items() if name not in removed}
        kept_folders = {name for name in old.folders if name not in removed}
        manifest = Manifest(kept | files, tuple(sorted(kept_folders | {*folders})), stage.name, tuple(sorted(removed)))
        _commit(folder, manifest)


def seal_run(folder: Path) -> None:
    """Writes the manifest of a folder that holds a run and nothing else."""
    write_manifest(folder, Manifest(*_seal(folder)))


def _commit(folder: Path, manifest: Manifest) -> None:
    refuse_links(folder, [*manifest.files, *manifest.folders, *manifest.removed])
    write_manifest(folder, manifest)
    _finish(folder, manifest)


def _finish(folder: Path, manifest: Manifest) -> None:
    """Finishes a committed change; can be repeated from any point."""
    stage = None if manifest.staged is None else folder / manifest.staged
    put_in_place(folder, stage, manifest.files, manifest.folders, manifest.removed)
    write_manifest(folder, Manifest(manifest.files, manifest.folders, format=manifest.format))
    if stage is not None:
        remove_tree(stage)


def _is_committed(folder: Path, stage: Path) -> bool:
    try:
        return read_manifest(folder).staged == stage.name
    except FileNotFoundError:
        return False
    except RunError:  # better to leave files to clean up than to lose some
        return True


def _old_run(folder: Path) -> Manifest | None:
    """The contents of the run in the folder; if it is damaged, everything that it could contain."""
    if not holds_run(folder):
        return None
    try:
        return read_manifest(folder)
    except RunError:
        there = {name: Entry(0, "") for name in sorted(RUN_FILES) if (folder / name).exists()}
        return Manifest(there, tuple(name for name in FOLDERS if (folder / name).exists()))


def _refuse_foreign_files(folder: Path, old: Manifest | None) -> None:
    ours = {*old.files, *old.folders} if old is not None else set()
    for name in (*sorted(RUN_FILES), *FOLDERS):
        if name not in ours and ((folder / name).exists() or (folder / name).is_symlink()):
            raise RunError(
                f"{folder / name}: in the way of a new run, and not listed in a {MANIFEST} there, expected a folder "
                "without it; move it, or choose another --out"
            )


def _seal(stage: Path) -> tuple[dict[str, Entry], tuple[str, ...]]:
    """Syncs everything in a folder; gives the digests of its files and the names of its folders without digests."""
    names = synced_files(stage)
    files = {
        name: digest_file(path) for name, path in names.items() if not name.startswith(tuple(f"{f}/" for f in FOLDERS))
    }
    return files, tuple(name for name in FOLDERS if (stage / name).exists())
