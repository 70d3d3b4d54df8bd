"""Checks of the files that commands write results into, so that no existing file is overwritten by mistake."""

from pathlib import Path

from antiphon.exceptions import InputError
from antiphon.storage.manifest import RUN_FILES, holds_run


def refuse_run_file(out: Path) -> None:
    """Refuses the name of a file of a run in a run folder: the run would count as damaged."""
    if out.name in RUN_FILES and holds_run(out.parent):
        raise InputError(f"{out}: the name of a file of the run in that folder, expected another name")


def check_new(out: Path | None) -> None:
    """Refuses a file that exists, or whose folder does not, before anything is computed."""
    if out is None:
        return
    if out.exists() or out.is_symlink():
        raise InputError(f"{out}: exists already, expected the name of a new file")
    if not out.parent.is_dir():
        raise InputError(f"{out}: no folder {out.parent}, expected an existing one")
    refuse_run_file(out)
