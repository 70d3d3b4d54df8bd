"""Atomic changes of a run folder, safe against crashes at any point.

New files wait in a staging folder inside the run (``staging``). One rename, of the manifest, commits them. Before it
the run is the old one, after it the new one. Nothing is changed, recovered or cleaned up before it is certain that the
command may write: that there is no run, that ``force`` allows to replace it, or that every file of it was verified.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from antiphon.exceptions import RunError
from antiphon.storage.atomic import STAGED, sweep
from antiphon.storage.manifest import (
    FOLDERS,
    MANIFEST,
    PARTS,
    RUN_FILES,
    Manifest,
    holds_run,
    read_manifest,
    write_manifest,
)
from antiphon.storage.staging import commit_staged, discard_staged, put_in_place, staging_folder, synced_files
from antiphon.storage.verified_files import Entry, digest_file, refuse_links


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
    if folder.name in (*PARTS, *FOLDERS) and holds_run(folder.parent):
        raise RunError(f"{folder}: a part of the run in {folder.parent}, expected another --out")
    if holds_run(folder) and not force:
        raise RunError(
            f"{folder}: holds a run already ({MANIFEST}), expected a new folder; antiphon train --resume continues "
            "a training, --force replaces the run, or choose another --out"
        )
    old = _names_of_old_run(folder)
    refuse_links(folder, [STAGED, *sorted(old)])
    _refuse_foreign_files(folder, old)


def commit_new_run(folder: Path, stage: Path) -> None:
    """Makes the files in a staging folder the run in ``folder``, in place of the run there, if any."""
    recover(folder)
    old = _names_of_old_run(folder)
    _refuse_foreign_files(folder, old)
    files, folders = _seal(stage)
    _commit(folder, stage, Manifest(files, folders, tuple(sorted(old - {*files, *folders}))))


@contextmanager
def changed_run(folder: Path, remove: Iterable[str] = ()) -> Iterator[Path]:
    """An empty folder for files that are added to the run in ``folder``, or replaced in it, at the end.

    Files and folders named in ``remove`` are deleted in the same change. The caller must hold the lock of the folder,
    and an interrupted change must have been finished.
    """
    with staging_folder(folder) as stage:
        yield stage
        old = read_manifest(folder)
        files, folders = _seal(stage)
        removed = {*remove} & {*old.files, *old.folders}
        kept = {name: entry for name, entry in old.files.items() if name not in removed}
        every_folder = {*old.folders} - removed | {*folders}
        _commit(folder, stage, Manifest(kept | files, tuple(sorted(every_folder)), tuple(sorted(removed))))


def seal_run(folder: Path) -> None:
    """Writes the manifest of a folder that holds a run and nothing else."""
    write_manifest(folder, Manifest(*_seal(folder)))


def _commit(folder: Path, stage: Path, manifest: Manifest) -> None:
    refuse_links(folder, [*manifest.files, *manifest.folders, *(manifest.removed or ())])
    commit_staged(
        folder,
        stage,
        commit=lambda: write_manifest(folder, manifest),
        is_committed=lambda: _is_pending(folder),
        finish=lambda: _finish(folder, manifest),
    )


def _finish(folder: Path, manifest: Manifest) -> None:
    """Finishes a committed change; can be repeated from any point."""
    put_in_place(folder, manifest.files, manifest.folders, manifest.removed or ())
    write_manifest(folder, Manifest(manifest.files, manifest.folders))
    discard_staged(folder)


def _is_pending(folder: Path) -> bool:
    try:
        return not read_manifest(folder).is_finished()
    except FileNotFoundError:
        return False
    except RunError:  # better to leave files to clean up than to lose some
        return True


def _names_of_old_run(folder: Path) -> set[str]:
    """The files and folders of the run in the folder; if it is damaged, everything that it could contain."""
    if not holds_run(folder):
        return set()
    try:
        old = read_manifest(folder)
    except RunError:
        return {name for name in (*RUN_FILES, *FOLDERS) if (folder / name).exists()}
    return {*old.files, *old.folders, *(old.removed or ())}


def _refuse_foreign_files(folder: Path, ours: set[str]) -> None:
    for name in (*sorted(RUN_FILES), *FOLDERS):
        if name not in ours and ((folder / name).exists() or (folder / name).is_symlink()):
            raise RunError(
                f"{folder / name}: in the way of a new run, and not listed in a {MANIFEST} there, expected a folder "
                "without it; move it, or choose another --out"
            )


def _seal(stage: Path) -> tuple[dict[str, Entry], tuple[str, ...]]:
    """Syncs everything in a folder; gives the digests of its files and the names of its folders without digests."""
    names = synced_files(stage)
    inside = (MANIFEST, *(f"{folder}/" for folder in FOLDERS))  # the manifest of a run that has trained in the stage
    files = {name: digest_file(path) for name, path in names.items() if not name.startswith(inside)}
    return files, tuple(name for name in FOLDERS if (stage / name).exists())
