"""What sections of a recipe are made of: strict classes, bounded numbers, and marks on settings for some kinds only."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(gt=0, le=10**9)]
Width = Annotated[int, Field(gt=0, le=2**15)]
Hypotheses = Annotated[int, Field(gt=0, le=1000)]
Weight = Annotated[float, Field(ge=-1e6, le=1e6)]
Nats = Annotated[float, Field(ge=0, le=1e6)]

Group = Literal[
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

    group: Group


class Section(BaseModel):
    """A section of a recipe: unknown keys and non-finite numbers are refused; immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)
