"""Changes that wait in a staging folder inside the folder that they belong to.

New files are written into the staging folder and synced. Replacing one file atomically, which then names the staging
folder, commits the change. After that the files are moved into place; if that is interrupted, readers find them in the
staging folder, and the next writer moves them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from antiphon.storage.atomic import final_name_in_errors, remove_tree, scratch_folder, sync_folder, sync_path
from antiphon.storage.manifest import refuse_links


@contextmanager
def staging_folder(folder: Path, is_committed: Callable[[Path], bool]) -> Iterator[Path]:
    """A new folder inside ``folder``; after an error it is removed, unless what is in it has been committed."""
    with final_name_in_errors(folder), scratch_folder(folder) as stage:
        try:
            yield stage
        except BaseException:
            with suppress(OSError):
                if not is_committed(stage):
                    remove_tree(stage)
            raise


def synced_files(stage: Path) -> dict[str, Path]:
    """Every file under a staging folder by its relative name, synced and with the mode of new files."""
    mode = stage.stat().st_mode & 0o666
    paths = sorted(stage.rglob("*"))
    for path in paths:
        if path.is_file() and path.stat().st_mode & 0o777 != mode:
            path.chmod(mode)
        sync_path(path)
    sync_folder(stage)
    return {str(path.relative_to(stage)): path for path in paths if path.is_file()}


def put_in_place(
    folder: Path, stage: Path | None, files: Collection[str], folders: Collection[str], removed: Collection[str]
) -> None:
    """Moves staged files and folders into place and deletes what was removed; can be repeated from any point."""
    refuse_links(folder, [*files, *folders, *removed])
    if stage is not None:
        _move(folder, stage, files, folders)
    for name in removed:
        remove_tree(folder / name)
    _remove_empty_parents(folder, removed)
    for touched in {folder, *((folder / name).parent for name in files)}:
        sync_folder(touched)


def _move(folder: Path, stage: Path, files: Iterable[str], folders: Iterable[str]) -> None:
    for name in files:
        if (stage / name).exists():
            if not (folder / name).parent.exists():
                (folder / name).parent.mkdir(parents=True)
            (stage / name).replace(folder / name)
    for name in folders:
        if (stage / name).exists():
            remove_tree(folder / name)
            (stage / name).rename(folder / name)


def _remove_empty_parents(folder: Path, names: Iterable[str]) -> None:
    parents = {parent for name in names for parent in (folder / name).parents if folder in parent.parents}
    for parent in sorted(parents, reverse=True):  # inner folders first
        with suppress(OSError):
            parent.rmdir()
