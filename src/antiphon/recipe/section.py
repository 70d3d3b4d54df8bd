"""The base class of recipe sections, marks on settings that only some kinds have, and what is said of wrong values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from difflib import get_close_matches
from pathlib import Path
from reprlib import Repr
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from antiphon.terminal import one_line

Positive = Annotated[int, Field(gt=0, le=10**9)]
Width = Annotated[int, Field(gt=0, le=2**15)]
Hypotheses = Annotated[int, Field(gt=0, le=1000)]
Weight = Annotated[float, Field(ge=-1e6, le=1e6)]
Nats = Annotated[float, Field(ge=0, le=1e6)]

SettingGroup = Literal[
    "pairs",  # reads pairs of a source and a target
    "batches",  # reads them encoded, in batches
    "targets",  # reads targets alone
    "questions",  # reads questions and candidate answers
    "vectors",  # reads word vectors
    "epochs",  # is trained by gradient descent
    "attention",  # attends to the source from every output token, or has members that do
    "tokens",  # learns to predict target tokens
    "search",  # finds outputs by beam search
    "paths",  # can search for the best alignments, too
    "streams",  # can write while it reads
    "rescoring",  # weighs the scores of several models
    "members",  # averages several models
]
"""Settings that go together. Each kind of model says which groups it uses."""
_LONGEST_SHOWN = 100
"""Maximum number of characters shown of a wrong value."""
_OTHER_NAMES = {
    "lr": "learning_rate",
    "type": "kind",
    "architecture": "kind",
    "epochs": "max_epochs",
    "steps": "max_updates",
    "updates": "max_updates",
    "bs": "batch_size",
    "beam_size": "beam",
    "metric": "dev_metric",
    "ema": "ema_decay",
}
"""Usual names of settings elsewhere, and theirs here, which spelling alone does not find."""
_PLAIN = {
    "tuple_type": "input should be a list",
    "list_type": "input should be a list",
    "missing": "input should be a longer list",
    "too_long": "input should be a list of at most {max_length}",
    "path_type": "input should be a path, or a list of two for parallel files",
    "bool_type": "input should be true or false",
    "bool_parsing": "input should be true or false",
}
"""What is expected, in other words than those of pydantic, which are of Python."""


@dataclass(frozen=True)
class UsedBy:
    """Marks a setting, or a section, of kinds that use a group; what is not marked belongs to all kinds."""

    group: SettingGroup


class Section(BaseModel):
    """A section of a recipe: unknown keys, non-finite numbers, and booleans as numbers are refused; immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_boolean_numbers(cls, given: Any, info: ValidationInfo) -> Any:
        """The value as it is; pydantic would take ``true`` for the number 1."""
        values = given if isinstance(given, list | tuple) else [given]
        field = cls.model_fields[str(info.field_name)]
        if any(isinstance(value, bool) for value in values) and bool not in _types(field.annotation):
            raise PydanticCustomError("no_truth_value", "input should be neither true nor false")
        return given


def _types(annotation: Any) -> Iterator[Any]:
    """The types that an annotation is made of."""
    yield annotation
    for part in get_args(annotation):
        yield from _types(part)


def explain(error: ValidationError, names: Mapping[str, Sequence[str]]) -> dict[tuple[str, ...], str]:
    """A sentence for every key that is wrong, by section and name; ``names`` are the keys of each section."""
    by_key: dict[tuple[str, ...], dict[str, Any]] = {}
    for problem in error.errors(include_url=False):  # a union reports an error for each of its members
        by_key.setdefault(tuple(str(part) for part in problem["loc"][:2]), dict(problem))
    return {path: _explain(path, problem, names) for path, problem in by_key.items()}


def show_value(value: Any) -> str:
    """A value as Python would print it, booleans and dates as in TOML; truncated if it is long or deep."""
    if isinstance(value, bool | date | time):
        return str(value).lower()
    brief = Repr()
    brief.maxstring = brief.maxother = brief.maxlong = _LONGEST_SHOWN
    return one_line(brief.repr(value))


def check_texts(given: Any, key: str = "", depth: int = 4) -> None:
    """Refuses text that cannot be written to a file, by its dotted key; checks up to ``depth``."""
    for where, text in _texts(given, key, depth):
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            raise ValueError(f"{one_line(where)} = {show_value(text)}: not UTF-8 or with NUL, expected plain text")


def _expected(problem: Mapping[str, Any]) -> str:
    """What is expected instead of a wrong value."""
    if problem["type"] in _PLAIN:
        return _PLAIN[problem["type"]].format(**problem.get("ctx", {}))
    message = str(problem["msg"])
    return f"{message[0].lower()}{message[1:]}"


def _explain(path: Sequence[str], problem: Mapping[str, Any], names: Mapping[str, Sequence[str]]) -> str:
    key = one_line(".".join(path))
    if problem["type"] == "extra_forbidden":
        beside = names if len(path) == 1 else names[path[0]]
        near = nearest_names(path[-1], list(beside), most=1)
        return f"{key}: unknown key, " + (f"did you mean {near[0]}?" if near else "expected one of antiphon settings")
    if problem["type"] == "value_error":
        return str(problem["msg"]).removeprefix("Value error, ")
    return f"{key} = {show_value(problem['input'])}: {_expected(problem)}"


def nearest_names(name: str, known: Sequence[str], *, most: int) -> list[str]:
    """The names that are probably meant: the one that others call so, or the nearest; in a section or alone."""
    name = name[:_LONGEST_SHOWN].lower()
    section, dot, own = name.rpartition(".")
    meant = f"{section}{dot}{_OTHER_NAMES.get(own, own)}"
    return [meant] if meant in known else get_close_matches(name, known, n=most)


def _texts(given: Any, key: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(given, str | Path):
        yield key, str(given)
    elif depth and isinstance(given, Mapping):
        for name, value in given.items():
            yield from _texts(value, f"{key}.{name}" if key else str(name), depth - 1)
    elif depth and isinstance(given, list | tuple):
        for value in given:
            yield from _texts(value, key, depth - 1)
