"""Replaces an exported run as a whole or not at all, whatever stops the command.

New files wait in a staging folder inside the exported folder (``storage/staging.py``). One rename, of ``lite.json``,
commits them: it then has the new settings, and ``removed`` lists the files that are to be deleted. When all files are
in place, the ``lite.json`` of the staging folder takes its place. Nothing is changed before it is certain that the
folder may be written to.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from antiphon.exceptions import RunError
from antiphon.lite.folder import EXPORTED_FILES, SETTINGS, read_settings
from antiphon.storage.atomic import is_unfinished, locked, write_atomically
from antiphon.storage.manifest import holds_run
from antiphon.storage.staging import (
    commit_staged,
    discard_staged,
    put_in_place,
    refuse_all_links,
    refuse_links,
    render_sealed,
    staging_folder,
    synced_files,
)


@contextmanager
def replaced_export(out: Path, *, force: bool) -> Iterator[Path]:
    """An empty folder for a new exported run, which replaces the one in ``out``, if any, at the end.

    An existing exported run is refused, or replaced with ``force``. Other files in its folder stay, and
    are refused if they are in the way. Folders of anything else are refused.
    """
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise RunError(f"{out}: not a folder, expected a new name for --out")
    with locked(out):
        _refuse_contents(out, force=force)
        refuse_all_links(out, sorted(EXPORTED_FILES))
        with staging_folder(out) as stage:
            yield stage
            _commit(out, stage)


def _refuse_contents(out: Path, *, force: bool) -> None:
    """Refuses a folder that holds anything of the user's but an exported run that may be replaced."""
    is_ours = (out / SETTINGS).is_file() and not holds_run(out)
    if not all(map(is_unfinished, out.iterdir())) and not (is_ours and force):
        hint = "use --force to replace it, or another --out" if is_ours else "expected a new or empty folder as --out"
        raise RunError(f"{out}: holds {'an exported run' if is_ours else 'other files'} already, {hint}")


def _exported_files(out: Path) -> set[str]:
    """The files of an exported run and of its parts; if its settings are damaged, all that it could hold."""
    if not (out / SETTINGS).is_file():
        return set()
    try:
        return _listed_files(out)
    except (RunError, OSError):
        return {name for name in EXPORTED_FILES if (out / name).exists()}


def _listed_files(folder: Path, part: str = "") -> set[str]:
    settings = read_settings(folder / part)
    network = settings["network"]
    names = {f"{part}{name}" for name in (SETTINGS, *settings["files"])} | {*settings.get("removed", ())}
    for name in (*network.get("members", ()), *network.get("parts", ())):
        names |= _listed_files(folder, f"{part}{name}/")
    return names & EXPORTED_FILES


def _commit(out: Path, stage: Path) -> None:
    """Makes what is in the staging folder the exported run."""
    if _is_pending(out):
        _finish(out)
    old, new = _exported_files(out), {*synced_files(stage)}
    refuse_links(out, sorted(new | old))
    for name in sorted(new - old):
        if (out / name).exists():
            raise RunError(
                f"{out / name}: in the way of the exported run, and not listed in {out / SETTINGS}, expected a folder "
                "without it; move it, or choose another --out"
            )
    settings = render_sealed(read_settings(stage) | {"removed": sorted(old - new)})
    commit_staged(
        out,
        stage,
        commit=lambda: write_atomically(out / SETTINGS, settings),
        is_committed=lambda: _is_pending(out),
        finish=lambda: _finish(out),
    )


def _is_pending(out: Path) -> bool:
    """Whether a replacement was committed and its files are not all in place."""
    with suppress(RunError):  # nothing there, or damaged
        return "removed" in read_settings(out)
    return False


def _finish(out: Path) -> None:
    """Moves the files of a committed replacement into place; can be repeated from any point."""
    settings = read_settings(out)
    put_in_place(out, sorted(EXPORTED_FILES - {SETTINGS}), (), settings.pop("removed"))
    write_atomically(out / SETTINGS, render_sealed(settings))
    discard_staged(out)
