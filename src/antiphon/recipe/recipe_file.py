"""Recipe files: read from TOML with ``--set key=value`` on top, checked, written back, and found by name.

Every ``*.toml`` in ``shipped/`` comes with the package: ``antiphon train g2p ...``. Its first comment line says what
it is for.

Paths of data are absolute while a recipe is used, relative to the run folder once it is saved in one. Nothing that a
saved path names is read when a run is loaded; only ``--resume`` and the examples of the service use it, if the file is
there. If a project is moved as a whole, such paths stay valid, and none reveals where it was.
"""

import os
import re
import shutil
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tomli_w
from pydantic import ValidationError

from antiphon.exceptions import RecipeError
from antiphon.recipe.kinds import KINDS
from antiphon.recipe.schema import (
    DEFAULT_KIND,
    Recipe,
    drop_lstm_rates,
    drop_unused,
    kind_in,
    refuse_other_searches,
    refuse_unused,
    section_fields,
    unused_settings,
    without,
)
from antiphon.recipe.sections import DataSection, explain, show_value
from antiphon.storage.files import write_atomically
from antiphon.terminal import Say, one_line, silent
from antiphon.torch_free.readers import is_pipe, read_lines, read_text

PATH_SETTINGS = tuple(name for name, field in DataSection.model_fields.items() if "Path" in str(field.annotation))
"""Settings of the section ``data`` that name files or folders."""
Table = dict[str, Any]
Change = Callable[[Path], Path]
_FILES = ("train", "dev", "test", "unpaired")
"""Settings that name files of text."""


def resolve_paths(table: Table, folder: Path) -> None:
    """Makes the paths of a recipe absolute; relative ones start from ``folder``."""
    _change_paths(table, lambda given: _absolute(folder / given))


def paths_in_run(table: Table, run: Path) -> None:
    """Makes the paths of a saved recipe absolute; they start from the run folder."""
    _change_paths(table, lambda given: Path(os.path.normpath(run.resolve() / given)))


def relative_to_run(table: Table, run: Path) -> None:
    """Makes the absolute paths of a recipe relative to the run folder."""
    _change_paths(table, lambda given: Path(os.path.relpath(given.absolute(), run.resolve())))


def without_paths(recipe: Recipe) -> Recipe:
    """The recipe without the paths of its data, for a copy of a run."""
    unset = {name: DataSection.model_fields[name].default for name in PATH_SETTINGS}
    return recipe.model_copy(update={"data": recipe.data.model_copy(update=unset)})


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


def _change_paths(table: Table, change: Change) -> None:
    """Replaces the paths of a table of sections; what is not a path is left to the checks of the schema."""
    data = table.get("data")
    if isinstance(data, dict):
        data.update({name: _changed(data[name], change) for name in PATH_SETTINGS if name in data})


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


Settings = Iterable[str] | Mapping[str, Any]
"""``["train.seed=7"]``, or ``{"train.seed": 7}``."""
SHIPPED = Path(__file__).parent / "shipped"
"""The folder of the recipes that come with the package; messages call them by their names."""


def load_recipe(path: Path, settings: Settings = (), say: Say = silent, grid: Collection[str] = ()) -> Recipe:
    """The recipe in a TOML file with settings on top; relative paths in the file start from the folder of the file.

    Keys of settings that ``--grid`` tries are named in ``grid``, for messages.
    """
    where = f"recipe {path.stem}" if path.parent == SHIPPED else str(path)
    return make_recipe(_read_toml(path), settings, say, where=where, folder=path.parent, grid=grid)


def make_recipe(
    table: Mapping[str, Any],
    settings: Settings = (),
    say: Say = silent,
    *,
    where: str = "recipe",
    folder: Path = Path(),
    grid: Collection[str] = (),
) -> Recipe:
    """The recipe of a nested table with settings on top.

    Relative paths in the table start from ``folder``, those in settings from the current one. Settings that the kind
    of model does not have are refused; where ``settings`` change the kind, those of the table are dropped, and ``say``
    gets a line about it. ``where`` names the table in messages.
    """
    table = {section: dict(values) if isinstance(values, Mapping) else values for section, values in table.items()}
    resolve_paths(table, folder)
    changes: dict[str, Any] = {}
    for section, name, value in _parse_settings(settings):
        changes.setdefault(section, {})[name] = value
    resolve_paths(changes, Path())
    table, lstm_rates = drop_lstm_rates(table, changes)
    table, dropped = drop_unused(table, changes)
    kind = kind_in(_merge(table, changes).get("model"))
    changed_by = "settings" if isinstance(settings, Mapping) else "--set"
    changed: dict[tuple[str, ...], str] = {
        (section, name): "--grid" if f"{section}.{name}" in grid else changed_by
        for section, values in changes.items()
        for name in values
    }
    refuse_unused(kind, changes, changed_by, changed)
    refuse_unused(kind, table, where)
    recipe = parse_recipe(_merge(table, changes), where, changed)
    if dropped:
        say(f"{where}: dropped for kind {kind}: {', '.join(dropped)}")
    if lstm_rates:
        say(f"{where}: chosen for LSTMs, dropped for a transformer: {', '.join(lstm_rates)}")
    return recipe


def change_search(recipe: Recipe, settings: Settings) -> Recipe:
    """The recipe of a trained run with other settings of the search; those of other sections are refused."""
    where, changes = "settings" if isinstance(settings, Mapping) else "--set", {}
    for section, name, value in _parse_settings(settings):
        if section not in Recipe.model_fields:
            raise RecipeError(f"{where}: {one_line(section)}.{one_line(name)}: no such section, expected search")
        if section != "search":
            raise RecipeError(
                f"{where}: {one_line(section)}.{one_line(name)}: needs another training, expected a setting of the "
                "search, such as search.beam; train again with this setting"
            )
        changes[name] = value
    refuse_other_searches(recipe.model.kind, changes, where)
    return parse_recipe(_merge(as_table(recipe), {"search": changes}), where) if changes else recipe


def parse_recipe(table: Mapping[str, Any], where: str, changed: Mapping[tuple[str, ...], str] | None = None) -> Recipe:
    """The recipe of a nested table; all problems are reported together.

    ``where`` names the table in messages, ``changed`` what set a key instead, such as ``--set``.
    """
    try:
        return Recipe.model_validate(table)
    except ValidationError as error:
        kind = kind_in(table.get("model"))
        known = KINDS[kind if isinstance(kind, str) and kind in KINDS else DEFAULT_KIND]
        names = {section: tuple(section_fields(section, known)) for section in Recipe.model_fields}
        problems = explain(error, names).items()
        raise RecipeError("\n".join(f"{(changed or {}).get(key, where)}: {each}" for key, each in problems)) from None


def save_recipe(recipe: Recipe, path: Path, run: Path | None = None) -> None:
    """Writes all settings of the kind of model, including defaults but not unset ones.

    The recipe of a run is saved with paths relative to the folder ``run``.
    """
    table = as_table(recipe)
    if run is not None:
        relative_to_run(table, run)
    write_atomically(path, tomli_w.dumps(table))


def as_table(recipe: Recipe) -> dict[str, Any]:
    """All settings of the kind of model that are not unset, as nested tables."""
    table = recipe.model_dump(mode="json", exclude_none=True)
    return without(table, unused_settings(recipe.model.kind, table))


_LONG_KEY = re.compile(r"""(?<![\w"'-])(?:[\w"'-]+[ \t]*\.[ \t]*){32}""")
"""A key of very many parts, such as ``a.a.a``: reading it takes time that grows with the square of their number."""


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a text in TOML; raises ``ValueError`` for any other."""
    if _LONG_KEY.search(text):
        raise ValueError("nested too deeply")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return parse_toml(read_text(path))
    except FileNotFoundError:
        raise RecipeError(f"{path}: no such file, expected a recipe in TOML") from None
    except IsADirectoryError:
        raise RecipeError(f"{path}: a folder, expected a recipe in TOML or a file of pairs") from None
    except ValueError as error:
        raise RecipeError(f"{path}: not TOML ({one_line(str(error))})") from None


def _parse_settings(settings: Settings) -> Iterator[tuple[str, str, Any]]:
    """Section, name and value of each setting."""
    if not isinstance(settings, Mapping):
        yield from map(_parse_setting, settings)
        return
    for key, value in settings.items():
        section, dot, name = str(key).partition(".")
        if not dot:
            raise RecipeError(f"settings: {one_line(str(key))!r}, expected section.key such as train.seed")
        yield section, name, value


def _parse_setting(setting: object) -> tuple[str, str, Any]:
    key, value = split_setting(setting)
    section, _, name = key.partition(".")
    return section, name, _parse_value(value)


def split_setting(setting: object) -> tuple[str, str]:
    """Key and value of a setting such as ``train.seed=7``."""
    if not isinstance(setting, str):
        raise RecipeError(f"settings: {show_value(setting)}, expected 'section.key=value', such as 'train.seed=7'")
    key, equals, value = setting.partition("=")
    section, dot, name = key.strip().partition(".")
    if not (equals and dot and name):
        raise RecipeError(f"--set {one_line(setting)}: expected section.key=value, such as train.seed=7")
    return f"{section}.{name}", value


def _parse_value(text: str) -> Any:
    """The value that a text has in TOML; if it is no single value, the text itself."""
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text.strip()
    return table["value"] if len(table) == 1 else text.strip()


def _merge(table: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(table)
    for section, values in changes.items():
        before = table.get(section, {})
        merged[section] = {**before, **values} if isinstance(before, dict) else values
    return merged


@dataclass(frozen=True)
class ShippedRecipe:
    """A recipe of the package: ``task`` says in a few words what it is for."""

    name: str
    task: str
    recipe: Recipe


def recipe_names() -> list[str]:
    """The names of all recipes of the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def names_recipe(name: str) -> bool:
    """Whether a name is that of a recipe of the package, or of a TOML file."""
    return name in recipe_names() or Path(name).suffix == ".toml"


def shipped_recipes() -> Iterator[ShippedRecipe]:
    """Every recipe of the package with its task."""
    for name in recipe_names():
        path = SHIPPED / f"{name}.toml"
        first_line = path.read_text(encoding="utf-8").partition("\n")[0]
        yield ShippedRecipe(name, re.split(r"[:,(]", first_line.removeprefix("#"))[0].strip(), load_recipe(path))


def find_recipe(name: str | Path) -> Path:
    """The file of a recipe, named as ``g2p`` or by a path; an unknown one is an error that suggests the nearest.

    A recipe of the package takes precedence over a file or folder of the same name; ``./g2p`` means the file.
    """
    path, names = Path(name), recipe_names()
    if str(name) in names:
        return SHIPPED / f"{name}.toml"
    if path.exists():
        return path
    if path.suffix not in ("", ".toml"):
        raise RecipeError(f"{name}: no such file, expected a file of pairs, a TOML file, or a name: antiphon recipes")
    raise RecipeError(f"{name}: no such recipe, expected a TOML file or {_suggest(path.stem, names)}")


def copy_recipe(name: str, folder: Path) -> list[Path]:
    """Copies a recipe of the package and its data, overwriting nothing; the paths written."""
    source = _shipped(name)
    pairs = [(path, folder / path.relative_to(SHIPPED)) for path in (source, *sorted((SHIPPED / name).glob("*")))]
    for _, target in pairs:
        if target.exists():
            raise RecipeError(f"{target}: exists already, expected a folder without it")
    for path, target in pairs:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return [target for _, target in pairs]


def read_recipe(name: str) -> str:
    """The text of a recipe of the package."""
    return _shipped(name).read_text(encoding="utf-8")


def _shipped(name: str) -> Path:
    names = recipe_names()
    if name not in names:
        raise RecipeError(f"{name}: no such recipe, expected {_suggest(name, names)}")
    return SHIPPED / f"{name}.toml"


def _suggest(name: str, names: list[str]) -> str:
    """The nearest names, or all of them if none is near."""
    near = get_close_matches(name.lower(), names, n=3, cutoff=0.5)
    return f"one of the package: {', '.join(near or names)}; antiphon recipes lists them"
