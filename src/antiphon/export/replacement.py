"""Replaces an exported run as a whole or not at all, whatever stops the command.

New files wait in a staging folder inside the exported folder. One rename, of ``lite.json``, commits them: it then has
the new settings and names the staging folder. When all files are in place, the ``lite.json`` of the staging folder
takes its place.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from antiphon.exceptions import RunError
from antiphon.lite.exported_folder import SETTINGS, read_settings
from antiphon.storage.atomic import remove_tree, sweep, sync_folder, write_atomically
from antiphon.storage.commit import holds_run
from antiphon.storage.folder_lock import locked
from antiphon.storage.layout import PARTS
from antiphon.storage.manifest import refuse_links
from antiphon.storage.sealed_json import render_sealed
from antiphon.storage.staging import put_in_place, staging_folder, synced_files

_SUFFIXES = (".onnx", ".vocab", ".spm", "rules.tsv")
"""Ends of the names of files that an exported run can hold, beside its settings."""


@contextmanager
def replaced_export(out: Path, *, force: bool) -> Iterator[Path]:
    """An empty folder for a new exported run, which replaces the one in ``out``, if any, at the end.

    An existing exported run is refused, or replaced with ``force``. Other files in its folder stay, and
    are refused if they are in the way. Folders of anything else are refused.
    """
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise RunError(f"{out}: not a folder, expected a new name for --out")
    with locked(out):
        if not holds_run(out):
            _recover(out)
        _refuse_contents(out, force=force)
        old = _exported_files(out)
        with staging_folder(out, lambda stage: _staged(out) == stage) as stage:
            yield stage
            _commit(out, stage, old)


def _recover(out: Path) -> None:
    """Finishes a replacement that was committed and interrupted, and removes what was never committed."""
    stage = _staged(out)
    if stage is not None:
        _finish(out, stage)
    sweep(out)


def _staged(out: Path) -> Path | None:
    """The staging folder of a replacement that was committed and is not finished."""
    with suppress(RunError):  # nothing there, or damaged
        settings = read_settings(out)
        return out / settings["staged"] if "staged" in settings else None
    return None


def _refuse_contents(out: Path, *, force: bool) -> None:
    """Refuses a folder that holds anything of the user's but an exported run that may be replaced."""
    is_ours = (out / SETTINGS).is_file() and not holds_run(out)
    if any(out.iterdir()) and not (is_ours and force):
        hint = "use --force to replace it, or another --out" if is_ours else "expected a new or empty folder as --out"
        raise RunError(f"{out}: holds {'an exported run' if is_ours else 'other files'} already, {hint}")


def _exported_files(folder: Path) -> set[str]:
    """The files of an exported run and of its parts; if its settings are damaged, all that it could hold."""
    if not (folder / SETTINGS).is_file():
        return set()
    try:
        settings = read_settings(folder)
        network = settings["network"]
        names, parts = {*settings["files"]}, {*network.get("members", ()), *network.get("parts", ())} & {*PARTS}
    except RunError:
        names, parts = {path.name for path in folder.iterdir() if path.name.endswith(_SUFFIXES)}, {*PARTS}
    return {SETTINGS, *names} | {f"{part}/{name}" for part in parts for name in _exported_files(folder / part)}


def _commit(out: Path, stage: Path, old: set[str]) -> None:
    """Makes what is in the staging folder the exported run."""
    new = {*synced_files(stage)}
    refuse_links(out, sorted(new | old))
    for name in sorted(new - old):
        if (out / name).exists():
            raise RunError(
                f"{out / name}: in the way of the exported run, and not listed in {out / SETTINGS}, expected a folder "
                "without it; move it, or choose another --out"
            )
    change = {"staged": stage.name, "removed": sorted(old - new)}
    write_atomically(out / SETTINGS, render_sealed(read_settings(stage) | change))
    _finish(out, stage)


def _finish(out: Path, stage: Path) -> None:
    """Moves the files of a committed replacement into place; can be repeated from any point."""
    settings = read_settings(out)
    names = [str(path.relative_to(stage)) for path in sorted(stage.rglob("*")) if path.is_file()]
    put_in_place(out, stage, [name for name in names if name != SETTINGS], (), settings["removed"])
    (stage / SETTINGS).replace(out / SETTINGS)
    sync_folder(out)
    remove_tree(stage)
