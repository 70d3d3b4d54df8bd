"""Paths of data in recipes: absolute while a recipe is used, relative to the run folder once it is saved in one.

Nothing that a saved path names is read when a run is loaded; only ``--resume`` and the examples of the service use
it, if the file is there. If a project is moved as a whole, such paths stay valid, and none reveals where it was.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from antiphon.recipe.model_sections import MatcherSection
from antiphon.recipe.schema import DataSection, Recipe
from antiphon.torch_free.files import is_pipe, read_lines

PATH_SETTINGS = tuple(name for name, field in DataSection.model_fields.items() if "Path" in str(field.annotation))
"""Settings of the section ``data`` that name files or folders."""
Table = dict[str, Any]
Change = Callable[[Path], Path]
_FILES = ("train", "dev", "test", "unpaired")
"""Settings that name files of text."""


def resolve_paths(table: Table, folder: Path) -> None:
    """Makes the paths of a recipe absolute; relative ones start from ``folder``, that of an encoder from here."""
    _change_paths(table, lambda given: _absolute(folder / given), _absolute)


def paths_in_run(table: Table, run: Path) -> None:
    """Makes the paths of a saved recipe absolute; they start from the run folder."""
    _change_paths(table, lambda given: Path(os.path.normpath(run.resolve() / given)))


def relative_to_run(table: Table, run: Path) -> None:
    """Makes the absolute paths of a recipe relative to the run folder."""
    _change_paths(table, lambda given: Path(os.path.relpath(given.absolute(), run.resolve())))


def without_paths(recipe: Recipe) -> Recipe:
    """The recipe without the paths of its data, for a copy of a run; of the path of an encoder, the name is kept."""
    unset = {name: DataSection.model_fields[name].default for name in PATH_SETTINGS}
    changes: dict[str, Any] = {"data": recipe.data.model_copy(update=unset)}
    if isinstance(recipe.model, MatcherSection):
        changes["model"] = recipe.model.model_copy(update={"pretrained": Path(recipe.model.pretrained).name})
    return recipe.model_copy(update=changes)


def with_moved_paths(stored: Recipe, asked: Recipe) -> Recipe:
    """The recipe of a run with the paths asked for, where its own files are missing and only the folders differ."""
    moved = {
        name: getattr(asked.data, name)
        for name in PATH_SETTINGS
        if _is_moved(_paths(getattr(stored.data, name)), _paths(getattr(asked.data, name)))
    }
    return stored.model_copy(update={"data": stored.data.model_copy(update=moved)})


def _is_moved(before: Sequence[Path], now: Sequence[Path]) -> bool:
    same_names = [path.name for path in before] == [path.name for path in now]
    return same_names and not any(path.exists() for path in before)


def _paths(value: Path | Sequence[Path] | None) -> Sequence[Path]:
    return [value] if isinstance(value, Path) else value or []


def _change_paths(table: Table, change: Change, change_encoder: Change | None = None) -> None:
    """Replaces the paths of a table of sections; what is not a path is left to the checks of the schema.

    An encoder is the name of a package, or with a slash a path.
    """
    data, model = table.get("data"), table.get("model")
    if isinstance(data, dict):
        data.update({name: _changed(data[name], change) for name in PATH_SETTINGS if name in data})
    if isinstance(model, dict) and os.sep in str(model.get("pretrained", "")):
        model["pretrained"] = _changed(model["pretrained"], change_encoder or change)


def _changed(value: Any, change: Change) -> Any:
    if isinstance(value, list | tuple):
        return [_changed(part, change) for part in value]
    return str(change(Path(value))) if isinstance(value, str | Path) else value


def _absolute(path: Path) -> Path:
    """The absolute path; one that goes up is followed through links of folders, as the file system does."""
    path = path.absolute()
    if ".." not in path.parts or "\0" in str(path):
        return path
    return Path(os.path.realpath(path.parent), path.name) if path.name != ".." else Path(os.path.realpath(path))


@contextmanager
def spooled(recipe: Recipe) -> Iterator[Recipe]:
    """The recipe with a copy in place of every pipe it reads text from, since training reads its files more than once.

    The copies are deleted at the end of the block.
    """
    if not any(is_pipe(path) for name in _FILES for path in _paths(getattr(recipe.data, name))):
        yield recipe
        return
    with TemporaryDirectory(prefix="antiphon-pipe-") as folder:
        data = {name: _spool(getattr(recipe.data, name), Path(folder) / name) for name in _FILES}
        yield recipe.model_copy(update={"data": recipe.data.model_copy(update=data)})


def _spool(files: Path | tuple[Path, ...] | None, copy: Path) -> Path | tuple[Path, ...] | None:
    read = [
        _copy_lines(path, copy.with_name(f"{copy.name}-{index}")) if is_pipe(path) else path
        for index, path in enumerate(_paths(files))
    ]
    return tuple(read) if isinstance(files, tuple) else next(iter(read), None)


def _copy_lines(pipe: Path, copy: Path) -> Path:
    with copy.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in read_lines(pipe))
    return copy
