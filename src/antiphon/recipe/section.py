"""The base class of recipe sections, types of bounded numbers, and marks on settings that only some kinds have."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

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
