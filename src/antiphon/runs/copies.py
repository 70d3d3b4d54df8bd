"""Copies of runs, as parts of other runs, and the digest by which they are recognised."""

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from antiphon.recipe.recipe_file import as_table, without_paths
from antiphon.runs.run_folder import RunFolder
from antiphon.storage.files import digest_file, open_regular
from antiphon.storage.manifest import PREDICTION_FILES, seal_run


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
    """SHA-256 of all that outputs depend on: the same for a run and its copies.

    That is the bytes of files, and the recipe without its paths.
    """
    names = [name for name in PREDICTION_FILES if name not in ("recipe.toml", "metrics.json")]
    about = {
        "recipe": as_table(without_paths(run.recipe())),
        "files": {name: digest_file(run.file(name)).sha256 for name in names if run.file(name).exists()},
        "parts": {name: run_digest(part) for name, part in run.parts().items()},
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
