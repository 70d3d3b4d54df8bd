"""Recipe files: read from TOML with ``--set key=value`` on top, checked, and written back."""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from antiphon.data.files import read_text
from antiphon.exceptions import RecipeError
from antiphon.recipe.kind_settings import changed_settings, drop_unused, refuse_unused, unused_settings, without
from antiphon.recipe.problems import explain
from antiphon.recipe.schema import DataSection, Recipe
from antiphon.storage.atomic import write_atomically
from antiphon.terminal import one_line

_NAMES = {
    name: tuple(section.annotation.model_fields) if section.annotation is not None else ()
    for name, section in Recipe.model_fields.items()
}


def load_recipe(path: Path, settings: Iterable[str] = (), say: Callable[[str], None] = lambda _: None) -> Recipe:
    """The recipe in a TOML file with ``key=value`` settings on top.

    Relative paths in the file start from the file's folder, those in settings from the current one. Settings that the
    kind of model does not have are refused; where ``settings`` change the kind, those of the file are left aside, and
    ``say`` hears of it.
    """
    table = _read_toml(path)
    _resolve_paths(table.get("data"), path.parent)
    changes: dict[str, Any] = {}
    for setting in settings:
        section, name, value = _parse_setting(setting)
        changes.setdefault(section, {})[name] = value
    _resolve_paths(changes.get("data"), Path())
    table, aside = drop_unused(table, changes)
    recipe = parse_recipe(_merge(table, changes), str(path))
    refuse_unused(recipe.model.kind, changes, "--set")
    refuse_unused(recipe.model.kind, changed_settings(table, recipe, Recipe()), str(path))
    if aside:
        say(f"{path}: left aside for kind {recipe.model.kind}: {', '.join(aside)}")
    return recipe


def parse_recipe(table: Mapping[str, Any], where: str) -> Recipe:
    """The recipe of a nested table; all that is wrong with it is said at once."""
    try:
        return Recipe.model_validate(table)
    except ValidationError as error:
        raise RecipeError("\n".join(f"{where}: {sentence}" for sentence in explain(error, _NAMES))) from None


def save_recipe(recipe: Recipe, path: Path) -> None:
    """Writes every setting that the kind of model has, defaults too, but those that are unset."""
    write_atomically(path, tomli_w.dumps(as_table(recipe)))


def as_table(recipe: Recipe) -> dict[str, Any]:
    """The settings that are set and that the kind of model has, as plain nested tables."""
    table = recipe.model_dump(mode="json", exclude_none=True)
    return without(table, unused_settings(recipe.model.kind, table))


def parse_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file; what is no TOML, however strange, is a ``ValueError`` that says why."""
    try:
        return tomllib.loads(read_text(path))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return parse_toml(path)
    except FileNotFoundError:
        raise RecipeError(f"{path}: no such file, expected a recipe in TOML") from None
    except (ValueError, IsADirectoryError) as error:
        raise RecipeError(f"{path}: not TOML ({one_line(str(error))})") from None


def _parse_setting(setting: str) -> tuple[str, str, Any]:
    key, equals, value = setting.partition("=")
    section, dot, name = key.strip().partition(".")
    if not (equals and dot and name):
        raise RecipeError(f"--set {one_line(setting)}: expected section.key=value, such as train.seed=7")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        parsed = value.strip()
    return section, name, parsed


def _merge(table: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(table)
    for section, values in changes.items():
        before = table.get(section, {})
        merged[section] = {**before, **values} if isinstance(before, dict) else values
    return merged


def _resolve_paths(section: Any, folder: Path) -> None:
    if not isinstance(section, dict):
        return
    for name, field in DataSection.model_fields.items():
        if "Path" in str(field.annotation) and name in section:
            section[name] = _resolve(section[name], folder)


def _resolve(value: Any, folder: Path) -> Any:
    if isinstance(value, list):
        return [_resolve(part, folder) for part in value]
    return str((folder / value).absolute()) if isinstance(value, str) else value
