"""Changes of a folder, whole or not at all, whatever stops the writer; for runs and for exported runs.

New files are written into a scratch folder inside the folder that they belong to, and synced. To commit the change, the
scratch folder is renamed to ``.antiphon-staged``, and one file that lists all others (``manifest.json``, ``lite.json``)
is replaced atomically: it then says that a change is being moved into place. If that is interrupted, readers find files
in ``.antiphon-staged``, and the next writer moves them.

The folder may come from elsewhere. So the staging folder has one fixed name, files have names that the program knows,
and everything is opened relative to open folders, without following symbolic links.
"""

import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath

from antiphon.storage.atomic import (
    STAGED,
    final_name_in_errors,
    lock_descriptor,
    new_scratch_folder,
    remove_tree,
    sweep,
    sync_descriptor,
    sync_path,
)
from antiphon.storage.verified_files import Entry, digest_inside, open_folder, parent_of, refuse_links


@contextmanager
def staging_folder(folder: Path) -> Iterator[Path]:
    """A new folder inside ``folder`` for the files of a change; it is removed at the end unless it was committed."""
    sweep(folder)
    with final_name_in_errors(folder):
        stage = new_scratch_folder(folder)
        try:
            yield stage
        finally:
            with suppress(OSError):
                remove_tree(stage)


def synced_files(stage: Path) -> dict[str, Path]:
    """Every file under a staging folder by its relative name, synced and with the mode of new files."""
    mode = stage.stat().st_mode & 0o666
    paths = sorted(stage.rglob("*"))
    for path in paths:
        if path.is_file() and path.stat().st_mode & 0o777 != mode:
            path.chmod(mode)
        sync_path(path)
    sync_path(stage)
    return {str(path.relative_to(stage)): path for path in paths if path.is_file()}


def commit_staged(
    folder: Path,
    stage: Path,
    *,
    commit: Callable[[], None],
    is_committed: Callable[[], bool],
    finish: Callable[[], None],
) -> None:
    """Gives the staging folder its fixed name and calls ``commit`` and ``finish``; if the first fails, nothing changes.

    An earlier change must have been moved into place.
    """
    discard_staged(folder)
    stage.rename(folder / STAGED)
    with open_folder(folder) as root, parent_of(root, f"{STAGED}/any") as (staged, _):
        lock_descriptor(staged)  # so that readers wait
        try:
            commit()
        except BaseException:
            if not is_committed():
                discard_staged(folder)
            raise
        finish()


def discard_staged(folder: Path) -> None:
    """Removes files that were staged and never committed, or that have been moved into place."""
    refuse_links(folder, [STAGED])
    with open_folder(folder) as root:
        _remove(root, STAGED)


def staged_folder(folder: Path) -> Path | None:
    """The folder of staged files, if there is one; a symbolic link is refused."""
    refuse_links(folder, [STAGED])
    return folder / STAGED if (folder / STAGED).is_dir() else None


def digest_listed(folder: Path, staged: Path | None, name: str) -> Entry:
    """Size and SHA-256 of a file, which is in the folder of staged files or in its place."""
    if staged is not None:
        with suppress(FileNotFoundError):
            return digest_inside(staged, name)
    return digest_inside(folder, name)


def is_being_moved(folder: Path) -> bool:
    """Whether a live process is moving staged files into place; on file systems without locks it cannot be seen."""
    try:
        descriptor = os.open(folder / STAGED, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return not lock_descriptor(descriptor)
    finally:
        os.close(descriptor)


def put_in_place(
    folder: Path, files: Collection[str], folders: Collection[str] = (), removed: Collection[str] = ()
) -> None:
    """Moves staged files and folders into place and deletes what was removed; can be repeated from any point."""
    refuse_links(folder, [STAGED, *files, *folders, *removed])
    with open_folder(folder) as root:
        if _is_there(root, STAGED):
            with parent_of(root, f"{STAGED}/any") as (staged, _):
                lock_descriptor(staged)
                _move(staged, root, files, folders)
        for name in removed:
            with suppress(FileNotFoundError), parent_of(root, name) as (parent, last):
                _remove(parent, last)
        _remove_empty_parents(root, removed)
        sync_descriptor(root)


def _move(staged: int, root: int, files: Iterable[str], folders: Iterable[str]) -> None:
    waiting = [name for name in files if _is_there(staged, name)]
    for name in waiting:
        with parent_of(staged, name) as (source, last), parent_of(root, name, create=True) as (target, _):
            os.rename(last, last, src_dir_fd=source, dst_dir_fd=target)
    for name in {PurePath(name).parent: name for name in waiting}.values():
        with parent_of(root, name) as (target, _):
            sync_descriptor(target)
    for name in folders:
        if _is_there(staged, name):
            _remove(root, name)
            os.rename(name, name, src_dir_fd=staged, dst_dir_fd=root)


def _is_there(root: int, name: str) -> bool:
    try:
        with parent_of(root, name) as (parent, last):
            os.stat(last, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _remove(folder: int, name: str) -> None:
    """Removes a file or folder with its contents, if it exists; of a symbolic link only the link."""
    try:
        is_folder = stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return
    if is_folder:
        shutil.rmtree(name, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)


def _remove_empty_parents(root: int, names: Iterable[str]) -> None:
    parents = {str(parent) for name in names for parent in PurePath(name).parents if parent.name}
    for parent in sorted(parents, reverse=True):  # inner folders first
        with suppress(OSError), parent_of(root, parent) as (above, last):
            os.rmdir(last, dir_fd=above)
