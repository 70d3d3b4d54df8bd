"""Files that commands write their results into: nothing that is there is overwritten unasked."""

from pathlib import Path

from antiphon.exceptions import InputError


def check_new(out: Path | None) -> None:
    """Refuses a file that exists, or whose folder does not, before anything is computed."""
    if out is None:
        return
    if out.exists() or out.is_symlink():
        raise InputError(f"{out}: exists already, expected the name of a new file")
    if not out.parent.is_dir():
        raise InputError(f"{out}: no folder {out.parent}, expected an existing one")
