"""The recipes that come with the package, by name: ``antiphon train g2p ...``.

Every ``*.toml`` in ``shipped/`` is one. Its first comment line says what it is for.
"""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from antiphon.exceptions import RecipeError
from antiphon.recipe.recipe_file import SHIPPED as FOLDER
from antiphon.recipe.recipe_file import load_recipe
from antiphon.recipe.schema import Recipe


@dataclass(frozen=True)
class ShippedRecipe:
    """A recipe of the package: ``task`` says in a few words what it is for."""

    name: str
    task: str
    recipe: Recipe


def recipe_names() -> list[str]:
    """The names of all recipes of the package."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def shipped_recipes() -> Iterator[ShippedRecipe]:
    """Every recipe of the package with its task."""
    for name in recipe_names():
        path = FOLDER / f"{name}.toml"
        first_line = path.read_text(encoding="utf-8").partition("\n")[0]
        yield ShippedRecipe(name, re.split(r"[:,(]", first_line.removeprefix("#"))[0].strip(), load_recipe(path))


def find_recipe(name: str | Path) -> Path:
    """The file of a recipe, named as ``g2p`` or by a path; an unknown one is an error that suggests the nearest.

    A recipe of the package takes precedence over a file or folder of the same name; ``./g2p`` means the file.
    """
    path, names = Path(name), recipe_names()
    if str(name) in names:
        return FOLDER / f"{name}.toml"
    if path.exists():
        return path
    raise RecipeError(f"{name}: no such recipe, expected a TOML file or {_suggest(path.stem, names)}")


def copy_recipe(name: str, folder: Path) -> list[Path]:
    """Copies a recipe of the package and its data, overwriting nothing; the paths written."""
    source = _shipped(name)
    pairs = [(path, folder / path.relative_to(FOLDER)) for path in (source, *sorted((FOLDER / name).glob("*")))]
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
    return FOLDER / f"{name}.toml"


def _suggest(name: str, names: list[str]) -> str:
    """The nearest names, or all of them if none is near."""
    near = get_close_matches(name.lower(), names, n=3, cutoff=0.5)
    return f"one of the package: {', '.join(near or names)}; antiphon recipes lists them"
