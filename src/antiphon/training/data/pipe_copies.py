"""Copies of data that come through pipes, since training reads its files more than once."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from antiphon.recipe.schema import Recipe
from antiphon.torch_free.files import is_pipe, read_lines


@contextmanager
def spooled(recipe: Recipe) -> Iterator[Recipe]:
    """The recipe with a copy in place of every pipe it reads text from; copies are deleted at the end of the block."""
    pipes = [path for name in _FILES for path in _paths(getattr(recipe.data, name)) if is_pipe(path)]
    if not pipes:
        yield recipe
        return
    with TemporaryDirectory(prefix="antiphon-pipe-") as folder:
        data = {name: _spool(getattr(recipe.data, name), Path(folder) / name) for name in _FILES}
        yield recipe.model_copy(update={"data": recipe.data.model_copy(update=data)})


_FILES = ("train", "dev", "test", "unpaired")
_Setting = Path | tuple[Path, ...] | None
"""A setting that names a file, several, or none."""


def _paths(files: _Setting) -> tuple[Path, ...]:
    return files if isinstance(files, tuple) else () if files is None else (files,)


def _spool(files: _Setting, copy: Path) -> _Setting:
    if isinstance(files, tuple):
        return tuple(_spool_one(path, copy.with_name(f"{copy.name}-{index}")) for index, path in enumerate(files))
    return files if files is None else _spool_one(files, copy)


def _spool_one(path: Path, copy: Path) -> Path:
    if not is_pipe(path):
        return path
    with copy.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in read_lines(path))
    return copy
