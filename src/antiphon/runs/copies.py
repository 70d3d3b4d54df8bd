"""Copies of runs: as parts of other runs, packed into one file, and recognised by one digest."""

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from antiphon.exceptions import RunError
from antiphon.recipe.recipe_file import as_table, without_paths
from antiphon.runs.run_folder import RunFolder, refuse_inside
from antiphon.storage.manifest import PREDICTION_FILES, seal_run
from antiphon.storage.packed_run import is_packed_run, pack_folder, temporary_folder
from antiphon.storage.staging import digest_file, open_regular


def copy_run(run: RunFolder, target: Path) -> None:
    """Copies the files of a run, and of its parts, that prediction needs; no path of their data is in the copy."""
    copy_files(run, PREDICTION_FILES, target)
    for name, part in run.parts().items():
        copy_run(part, target / name)
    RunFolder(target).save_recipe(without_paths(run.recipe()))
    seal_run(target)


def copy_part(run: RunFolder, target: Path) -> None:
    """Copies a run that becomes a part of another one; without weights it is refused."""
    if not run.parts():
        run.trained_weights()
    copy_run(run, target)


def copy_vocabs(run: RunFolder, target: RunFolder) -> None:
    """Copies the vocabularies and SentencePiece models of a run."""
    copy_files(run, ("source.vocab", "target.vocab", "features.vocab", "source.spm", "target.spm"), target.path)


def copy_files(run: RunFolder, names: Sequence[str], target: Path) -> None:
    """Copies those of the named files that a run has."""
    for name in names:
        if run.file(name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            with open_regular(run.file(name)) as content, (target / name).open("wb") as copy:
                shutil.copyfileobj(content, copy)


def run_digest(run: RunFolder) -> str:
    """SHA-256 of all that outputs depend on: the same for a run, its copies, and the packed run.

    That is the bytes of files, and the recipe without its paths.
    """
    names = [name for name in PREDICTION_FILES if name not in ("recipe.toml", "metrics.json")]
    about = {
        "recipe": as_table(without_paths(run.recipe())),
        "files": {name: digest_file(run.file(name)).sha256 for name in names if run.file(name).exists()},
        "parts": {name: run_digest(part) for name, part in run.parts().items()},
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


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
