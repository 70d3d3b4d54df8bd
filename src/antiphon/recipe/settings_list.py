"""Lists every setting with its type, default and meaning, from the classes of the recipe."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from antiphon.exceptions import RecipeError
from antiphon.recipe.kind_settings import STRICT_SECTIONS, settings_of
from antiphon.recipe.kinds import KINDS
from antiphon.recipe.model_sections import ModelSection
from antiphon.recipe.schema import DEFAULT_KIND, Recipe

_SHORTEST_WORD = 3
"""Letters that a word needs to be searched for in keys."""
_NAMES: dict[Any, str] = {str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path"}


@dataclass(frozen=True)
class Setting:
    """A setting: its key, such as ``train.seed``, its type, default and meaning, and which kinds have it.

    ``kinds`` is empty where all kinds accept it.
    """

    key: str
    type: str
    default: str
    meaning: str
    kinds: tuple[str, ...] = ()


def all_settings() -> Iterator[Setting]:
    """Every setting, section by section; one whose default differs between kinds comes once for each default."""
    by_setting: dict[Setting, list[str]] = {}
    for name, kind in KINDS.items():
        for key, field in settings_of(kind):
            by_setting.setdefault(_describe(*key, field), []).append(name)
    order = list(Recipe.model_fields)
    for setting, kinds in sorted(by_setting.items(), key=lambda each: order.index(each[0].key.partition(".")[0])):
        accepted_by_all = len(kinds) == len(KINDS) or not setting.key.startswith(STRICT_SECTIONS)
        yield setting if accepted_by_all else replace(setting, kinds=tuple(kinds))


def _describe(section: str, name: str, field: FieldInfo) -> Setting:
    if (section, name) == ("model", "kind"):
        meaning = ModelSection.model_fields["kind"].description or ""
        return Setting("model.kind", " | ".join(KINDS), DEFAULT_KIND, meaning)
    default = "unset" if field.default is None else str(field.default).lower()
    return Setting(f"{section}.{name}", _type_of(field), default, field.description or "")


def find_settings(key: str) -> list[Setting]:
    """The setting of a key, those of a section, or all whose key contains the word; else an error with the nearest."""
    settings = list(all_settings())
    found = [each for each in settings if key in (each.key, each.key.partition(".")[0])]
    found = found or [each for each in settings if len(key) >= _SHORTEST_WORD and key.lower() in each.key]
    if found:
        return found
    near = get_close_matches(key, dict.fromkeys(each.key for each in settings), n=3)
    hint = (
        f"did you mean {' or '.join(near)}?" if near else f"expected a key or one of {', '.join(Recipe.model_fields)}"
    )
    raise RecipeError(f"{key}: no such setting, {hint}")


def _type_of(setting: FieldInfo) -> str:
    """The type of a setting in words, with its bounds."""
    return _name(setting.annotation) + _bounds(setting.metadata)


def _name(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _name(arguments[0]) + _bounds(arguments[1:])
    if origin is Literal:
        return " | ".join(map(str, arguments))
    if origin in (Union, UnionType):
        return " | ".join(_name(each) for each in arguments if each is not NoneType)
    if origin is tuple:
        return _tuple_name(arguments)
    return _NAMES.get(annotation, str(annotation))


def _tuple_name(arguments: tuple[Any, ...]) -> str:
    if arguments[-1] is Ellipsis:
        return f"list of {_name(arguments[0])}s"
    return f"list of {len(arguments)} {_name(get_args(arguments[0])[0] if get_args(arguments[0]) else arguments[0])}s"


def _bounds(metadata: Any) -> str:
    signs = {"gt": "> {}", "ge": ">= {}", "lt": "< {}", "le": "<= {}"}
    constraints = [part for each in metadata for part in getattr(each, "metadata", [each])]
    found = [
        sign.format(f"{getattr(constraint, name):g}")
        for constraint in constraints
        for name, sign in signs.items()
        if getattr(constraint, name, None) is not None
    ]
    return f" ({', '.join(found)})" if found else ""
