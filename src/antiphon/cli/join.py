"""Put part files together, in the order of the inputs.

The folder is one that antiphon predict --out has filled, in one go or by several
shards. A folder in which parts are missing is refused, with their names: start
every shard again, and only these are predicted.

Examples:
  antiphon join parts > phonemes.txt
  antiphon join parts --out phonemes.txt
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from antiphon.cli.options import refuse_run_file
from antiphon.exceptions import InputError

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of part files.")]
Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Where to write; default: standard output.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the file, if there is one.")]


def command(folder: Folder, out: Out = None, force: Force = False) -> None:
    """Writes all parts of a folder as one file."""
    from antiphon.data.part_files import PartFolder
    from antiphon.storage.atomic import atomic_replacement

    parts = PartFolder.open(folder)
    parts.refuse_missing()
    if out is None:
        sys.stdout.writelines(parts.chunks())
        return
    check_output(out, folder, force=force)
    with atomic_replacement(out) as new, new.open("w", encoding="utf-8", newline="") as file:
        file.writelines(parts.chunks())


def check_output(out: Path, folder: Path, *, force: bool) -> None:
    """Refuses a file among the parts, an existing file without ``force``, and what is not a regular file."""
    if folder.resolve() in out.resolve().parents:
        raise InputError(f"{out}: in the folder of the parts, expected a file outside of it")
    if out.is_dir() or not out.parent.is_dir():
        raise InputError(f"{out}: a folder, or in one that does not exist, expected the name of a new file")
    refuse_run_file(out)
    if (out.exists() or out.is_symlink()) and not force:
        raise InputError(f"{out}: exists already, expected a new file; --force replaces it")
