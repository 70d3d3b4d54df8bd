"""Packs runs into one file each."""

from pathlib import Path

from antiphon.exceptions import RunError
from antiphon.runs.run_copies import copy_run
from antiphon.runs.run_folder import RunFolder, refuse_inside
from antiphon.storage.packed_run import is_packed_run, pack_folder, temporary_folder


def pack_run(run: Path, out: Path, *, force: bool = False) -> None:
    """Writes all files of a run that prediction needs into one file, without the paths of its data.

    A run whose training was stopped is packed with its best weights so far, without its checkpoint.
    """
    folder = RunFolder.open(run)
    if not folder.metrics() and not folder.weights.is_file():
        raise RunError(f"{run}: {folder.state()}, expected a run with weights")
    if out.is_dir() or not out.parent.is_dir():
        raise RunError(f"{out}: a folder, or in one that does not exist, expected the name of a new file")
    refuse_inside(out, [folder])
    _refuse_other_file(out, force=force)
    with temporary_folder() as copy:
        copy_run(folder, copy)
        pack_folder(copy, out)


def _refuse_other_file(out: Path, *, force: bool) -> None:
    """Refuses an existing file, except for a packed run that may be replaced."""
    if out.exists() and not out.is_file():
        raise RunError(f"{out}: a pipe or a device, expected the name of a new file")
    if out.is_symlink() or (out.exists() and not is_packed_run(out)):
        raise RunError(f"{out}: a file that is no packed run, expected a new file, or a packed run to replace")
    if out.exists() and not force:
        raise RunError(f"{out}: exists already, expected a new file; --force replaces it")
