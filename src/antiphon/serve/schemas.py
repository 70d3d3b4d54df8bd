"""What requests carry and answers have, with examples; unknown keys and wrong types are refused."""

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat

from antiphon.torch_free.inputs import MAX_BIAS


def check_characters(text: str) -> str:
    """The text, if it can be written as UTF-8; lone surrogates, which JSON escapes can express, are refused."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("half of a character (a lone surrogate), expected whole ones") from None
    return text


_UNION_MEMBERS = ("str", "TextInput", "function-after[check_characters(), str]")
Text = Annotated[str, AfterValidator(check_characters)]
Count = Annotated[int, Field(ge=1, le=1000)]
EmitBias = Annotated[FiniteFloat, Field(ge=-MAX_BIAS, le=MAX_BIAS)]
RunName = Annotated[
    Text, Field(description="Name of a run, as GET /api/runs lists it; where only one is served, it may be left out.")
]
Features = Annotated[Text, Field(description="Features such as N;DAT;PL, where the run reads them.")]
Prefix = Annotated[list[Text], Field(description="Tokens that every output must begin with.")]


class Body(BaseModel):
    """A JSON object with known keys."""

    model_config = ConfigDict(extra="forbid", strict=True)


class RunBody(Body):
    """What is asked of a run."""

    run: RunName = ""


class TextInput(Body):
    """An input with its features."""

    text: Text
    features: Features = ""


class PairInput(Body):
    """A source with its target; a language model needs no source."""

    source: Text = ""
    target: Text
    features: Features = ""


def _example(**keys: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"example": keys})


class PredictBody(RunBody):
    """Inputs to predict."""

    model_config = _example(run="demo", inputs=["knight", ""])
    inputs: list[Text | TextInput] = Field(description="Texts, or texts with features.")
    nbest: Count | None = Field(
        default=None, description="Maximum number of candidates per input; null: 1, with cover as many as allowed."
    )
    beam: Count | None = Field(default=None, description="Beam size; null: that of the recipe.")
    cover: FiniteFloat | None = Field(
        default=None, gt=0, le=1, description="Fewest candidates whose probabilities add up to this."
    )
    align: bool = Field(default=True, description="Whether candidates have rows.")
    allow_unknown_features: bool = False
    prefix: Prefix = []


class ScoreBody(RunBody):
    """Pairs to score."""

    model_config = _example(run="demo", pairs=[{"source": "knight", "target": "N AY T"}])
    pairs: list[PairInput]


class AlignBody(ScoreBody):
    """Pairs to align."""


class RankBody(RunBody):
    """A question and sentences to rank."""

    model_config = _example(run="answers", question="which colour ?", sentences=["the house was red", "the owl"])
    question: Text
    sentences: list[Text]
    explain: bool = Field(default=False, description="Whether sentences have the attention weights of their words.")


class TokensBody(RunBody):
    """Texts whose tokens a language model scores."""

    model_config = _example(run="lm", texts=["knight"], top=5)
    texts: list[Text]
    features: Features = ""
    top: Annotated[int, Field(ge=0, le=100)] = 5


class ShownBody(RunBody):
    """An input of which something is shown."""

    input: Text
    features: Features = ""
    ended: bool = Field(default=True, description="False: more input may follow.")
    emit_bias: EmitBias = 0.0
    top: Annotated[int, Field(ge=1, le=100)] = 5


class LatticeBody(ShownBody):
    """An input whose lattice is shown."""

    model_config = _example(run="demo", input="knight", ended=True, nbest=8, top=5)
    prefix: Prefix = []
    target: list[Text] | None = Field(default=None, description="Tokens of the output to show; null: the best.")
    nbest: Annotated[int, Field(ge=1, le=100)] = 8


class CellBody(ShownBody):
    """One cell of a lattice."""

    model_config = _example(run="demo", input="knight", target=["N", "AY", "T"], row=3, column=2)
    target: list[Text] = Field(description="Tokens of the columns, without the end symbol.")
    row: Annotated[int, Field(ge=0)]
    column: Annotated[int, Field(ge=0)]


class StreamStart(RunBody):
    """Options of a stream: the events ``start`` and ``reset`` of the socket."""

    policy: Literal["greedy", "beam"] = "beam"
    emit_bias: EmitBias = 0.0
    beam: Count | None = None
    margin: Annotated[FiniteFloat, Field(ge=0, le=1e6)] | None = None
    features: Features = ""
    prefix: Prefix = []
    watch: bool = False


def describe_errors(errors: Sequence[Mapping[str, Any]]) -> str:
    """Where the first error is, and what was expected."""
    first = errors[0]
    where, message = _key(first), str(first["msg"])
    if first["type"] == "extra_forbidden":
        return f"{where}: unknown key, expected one of those in /openapi.json"
    unknown = [_key(each) for each in errors if each["type"] == "extra_forbidden"]
    hint = f", and {unknown[0]} is an unknown key" if unknown and first["type"] == "missing" else ""
    return f"{where or 'body'}: {message[:1].lower()}{message[1:]}{hint}"


def _key(error: Mapping[str, Any]) -> str:
    """Where an error is, such as ``inputs[0].text``."""
    path = [part for part in error["loc"] if part not in ("body", *_UNION_MEMBERS)]
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")[:100]


EXAMPLES: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "examples.json").read_text(encoding="utf-8"))
"""An answer of each endpoint."""


def documented(name: str) -> dict[int | str, dict[str, Any]]:
    """How the answers of an endpoint are described."""
    return {200: _described("The answer.", EXAMPLES[name])} | REFUSALS


def _described(description: str, example: dict[str, Any]) -> dict[str, Any]:
    return {
        "description": description,
        "content": {"application/json": {"schema": schema_of([example]), "example": example}},
    }


_TYPES: dict[type, tuple[str, ...]] = {
    bool: ("boolean",),
    int: ("integer",),
    float: ("number", "null"),  # JSON has no infinite numbers
    str: ("string",),
    list: ("array",),
    dict: ("object",),
    type(None): ("null",),
}


def schema_of(examples: Sequence[Any]) -> dict[str, Any]:
    """The JSON schema of values like all of these; what is null in each of them may be anything."""
    types = sorted({name for each in examples for name in _TYPES[type(each)]})
    if types in ([], ["null"]):
        return {}
    schema: dict[str, Any] = {"type": types[0] if len(types) == 1 else types}
    if objects := [each for each in examples if isinstance(each, dict)]:
        keys = dict.fromkeys(chain.from_iterable(objects))
        schema["properties"] = {key: schema_of([each[key] for each in objects if key in each]) for key in keys}
        schema["required"] = [key for key in keys if all(key in each for each in objects)]
    if lists := [each for each in examples if isinstance(each, list)]:
        schema["items"] = schema_of(list(chain.from_iterable(lists)))
    return schema


_ERROR = {"error": "inputs: empty, expected at least one"}
REFUSALS: dict[int | str, dict[str, Any]] = {
    "4XX": _described("The request is refused: a sentence says why.", _ERROR),
    "5XX": _described("The service fails, stops or is too slow: a sentence says which.", _ERROR),
}
