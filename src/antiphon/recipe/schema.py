"""Recipes, and which settings each kind of model has; those of other kinds are refused by name, or dropped.

The section ``model`` has a class for each kind; settings of other sections are marked by the group they belong to.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, PlainValidator, SerializeAsAny, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails, PydanticCustomError

from antiphon.exceptions import RecipeError
from antiphon.recipe.kinds import KINDS, Kind
from antiphon.recipe.model_sections import ModelSection, TransducerSection
from antiphon.recipe.sections import (
    DataSection,
    SearchSection,
    Section,
    TokenKind,
    TrainSection,
    UsedBy,
    check_texts,
    nearest_names,
)

DEFAULT_KIND = TransducerSection().kind
"""The kind of a recipe that names none."""
Key = tuple[str, str]
"""A section and a name in it."""
_CHOSEN_FOR_LSTMS: tuple[Key, ...] = (("train", "learning_rate"), ("train", "warmup_updates"))
"""Settings of a recipe that are dropped where ``--set`` makes its model a transformer."""
STRICT_SECTIONS = ("model", "data")
"""Sections in which settings of other kinds are refused; in other sections they are ignored."""
_SHORTEST_WORD = 3
"""Letters that a word needs to be searched for in keys."""
_NAMES: dict[Any, str] = {str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path"}


class Recipe(Section):
    """All settings of a run."""

    data: DataSection = DataSection()
    model: Annotated[SerializeAsAny[ModelSection], PlainValidator(lambda given: _parse_model(given))] = (
        TransducerSection()
    )
    train: Annotated[TrainSection, UsedBy("epochs")] = TrainSection()
    search: Annotated[SearchSection, UsedBy("search")] = SearchSection()

    @model_validator(mode="before")
    @classmethod
    def _check_text(cls, given: Any) -> Any:
        check_texts(given)
        return given

    @model_validator(mode="after")
    def _check_copying(self) -> "Recipe":
        kinds = self.data.source_tokens, self.data.target_tokens
        if isinstance(self.model, TransducerSection) and self.model.copy_words and kinds != ("words", "words"):
            raise ValueError(
                f"model.copy_words = true with tokens that are {kinds[0]} and {kinds[1]}, "
                "expected data.source_tokens and data.target_tokens to be words"
            )
        return self


def token_kinds(data: DataSection) -> dict[str, TokenKind]:
    """The kind of token of the model's ``source`` and of its ``target``, which ``data.swap`` exchanges."""
    columns = data.source_tokens, data.target_tokens
    source, target = reversed(columns) if data.swap else columns
    return {"source": source, "target": target}


def kind_in(section: Any) -> Any:
    """The kind that a section ``model`` asks for, known or not."""
    return section.get("kind", DEFAULT_KIND) if isinstance(section, Mapping) else DEFAULT_KIND


def _parse_model(given: Any) -> ModelSection:
    """The section of the kind that is asked for: a union discriminated by ``kind``, open to kinds registered later."""
    if isinstance(given, ModelSection):
        return given
    if not isinstance(given, Mapping):
        return TransducerSection.model_validate(given)
    kind = kind_in(given)
    if not isinstance(kind, str) or kind not in KINDS:
        expected = PydanticCustomError("kind", "Input should be one of {kinds}", {"kinds": ", ".join(KINDS)})
        raise ValidationError.from_exception_data("model", [InitErrorDetails(type=expected, loc=("kind",), input=kind)])
    return KINDS[kind].section.model_validate(given)


def section_fields(section: str, kind: Kind) -> dict[str, FieldInfo]:
    """The settings of a section, of ``model`` those of a kind."""
    if section == "model":
        return kind.section.model_fields
    settings = Recipe.model_fields[section].annotation
    assert isinstance(settings, type)
    assert issubclass(settings, BaseModel)
    return settings.model_fields


def settings_of(kind: Kind) -> Iterator[tuple[Key, FieldInfo]]:
    """Every setting that applies to a kind."""
    for section, whole in Recipe.model_fields.items():
        for name, field in section_fields(section, kind).items():
            if kind.accepts(whole.metadata) and kind.accepts(field.metadata):
                yield (section, name), field


def kinds_with(key: Key) -> list[str]:
    """The names of the kinds that have a setting."""
    return [name for name, kind in KINDS.items() if _has(kind, key)]


def drop_unused(table: Mapping[str, Any], changes: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A recipe table without the settings that the kind set in ``changes`` does not have, and the keys dropped.

    If the kind does not change, everything stays, valid or not.
    """
    kind_in_file = kind_in(table.get("model"))
    kind = kind_in({"kind": kind_in_file, **_section(changes, "model")})
    dropped = unused_settings(kind, table, (*STRICT_SECTIONS, "search")) if kind != kind_in_file else []
    return without(table, dropped), [f"{section}.{name}" for section, name in dropped]


def drop_lstm_rates(table: Mapping[str, Any], changes: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A recipe table without learning rates chosen for LSTMs where ``changes`` make it a transformer's, and the keys.

    A rate and warm-up that suit LSTMs may keep a transformer from learning.
    """
    model = _section(table, "model")
    if _needs_warmup(model) or not _needs_warmup({**model, **_section(changes, "model")}):
        return dict(table), []
    dropped = [key for key in _CHOSEN_FOR_LSTMS if key[1] in _section(table, key[0])]
    return without(table, dropped), [f"{section}.{name}" for section, name in dropped]


def unused_settings(kind: object, table: Mapping[str, Any], sections: Iterable[str] = STRICT_SECTIONS) -> list[Key]:
    """The keys of a nested table that other kinds have and this one does not; empty for an unknown kind."""
    if not isinstance(kind, str) or kind not in KINDS:
        return []
    keys = [(section, name) for section in sections for name in _section(table, section)]
    return [key for key in keys if not _has(KINDS[kind], key) and kinds_with(key)]


def without(table: Mapping[str, Any], keys: Iterable[Key]) -> dict[str, Any]:
    """A nested table without some of its keys."""
    left = {section: dict(values) if isinstance(values, Mapping) else values for section, values in table.items()}
    for section, name in keys:
        del left[section][name]
    return left


def changed_settings(table: Mapping[str, Any], recipe: Recipe) -> dict[str, Any]:
    """The nested table of a recipe without the keys that have their default."""
    default = Recipe(model=KINDS[recipe.model.kind].section(kind=recipe.model.kind))
    values = (
        (key, attrgetter(".".join(key))) for key in ((section, name) for section in table for name in table[section])
    )
    return without(table, [key for key, value in values if value(recipe) == value(default)])


def refuse_unused(
    kind: Any, table: Mapping[str, Any], where: str, changed: Mapping[tuple[str, ...], str] | None = None
) -> None:
    """Refuses keys of a nested table that a kind does not have, by name; ``changed`` or ``where`` is their origin."""
    problems = [
        f"{(changed or {}).get(key, where)}: {'.'.join(key)}: kind {kind} has no such setting; {_hint(kind, key)}"
        for key in unused_settings(kind, table)
    ]
    if problems:
        raise RecipeError("\n".join(problems))


def refuse_other_searches(kind: str, names: Iterable[str], where: str) -> None:
    """Refuses settings of the section ``search`` that do not apply to a kind; ``where`` is their origin."""
    for name in names:
        owners = [each for each in KINDS if ("search", name) in dict(settings_of(KINDS[each]))]
        if owners and kind not in owners:
            raise RecipeError(
                f"{where}: search.{name}: kind {kind} has no such setting; it belongs to {', '.join(owners)}"
            )


def _needs_warmup(model: Mapping[str, Any]) -> bool:
    """Whether a section ``model``, not checked yet, is that of a transformer."""
    kind = kind_in(model)
    return isinstance(kind, str) and kind in KINDS and KINDS[kind].section.needs_warmup


def _section(table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = table.get(name)
    return section if isinstance(section, Mapping) else {}


def _has(kind: Kind, key: Key) -> bool:
    field = section_fields(key[0], kind).get(key[1])
    return field is not None and kind.accepts(field.metadata)


def _hint(kind: str, key: Key) -> str:
    if key[0] == "data":
        return f"it belongs to {', '.join(kinds_with(key))}"
    names = [name for name in KINDS[kind].section.model_fields if name != "kind"]
    return f"it has {', '.join(names) or 'none in the section model'}"


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
    near = nearest_names(key, list(dict.fromkeys(each.key for each in settings)), most=3)
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
