"""What requests carry and answers have, with examples; unknown keys and wrong types are refused."""

from collections.abc import Mapping, Sequence
from itertools import chain
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

    @property
    def item_count(self) -> int:
        """The number of inputs, pairs, sentences or texts that a request carries; 1 if it carries a single input."""
        given = [getattr(self, name, None) for name in ("inputs", "pairs", "sentences", "texts")]
        return next((len(items) for items in given if items is not None), 1)


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
        return f"{where}: unknown key, expected one of the keys in /docs"
    unknown = [_key(each) for each in errors if each["type"] == "extra_forbidden"]
    hint = f", and {unknown[0]} is an unknown key" if unknown and first["type"] == "missing" else ""
    return f"{where or 'body'}: {message[:1].lower()}{message[1:]}{hint}"


def _key(error: Mapping[str, Any]) -> str:
    """Where an error is, such as ``inputs[0].text``."""
    path = [part for part in error["loc"] if part not in ("body", *_UNION_MEMBERS)]
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")[:100]


_SYMBOLS = ["k", "n", "i", "g", "h", "t", "</s>"]
_CANDIDATE = {
    "text": "N AY T",
    "tokens": ["N", "AY", "T"],
    "probability": 0.885,
    "log_probability": -0.122,
    "score": -0.122,
}
_NEXT = {"summed": [["N", 0.892], ["K", 0.06]], "best_path": [["N", 0.95], ["EY", 0.033]], "read_on": 0.0}
_ABILITIES = ("predict", "score", "align", "lattice", "stream", "rank", "explain", "tokens")
_RUN = {
    "name": "demo",
    "kind": "transducer",
    "encoder": "bidirectional",
    "can": {name: name in ("predict", "score", "align", "lattice") for name in _ABILITIES},
    "source_tokens": "chars",
    "target_tokens": "words",
    "join": " ",
    "reads_features": False,
    "features": [],
    "beam": 4,
    "policies": [],
    "margin": None,
    "why_no_stream": "this run has a bidirectional encoder and cannot write before its input has ended",
    "weights": None,
    "examples": [{"input": "knight", "features": ""}],
}
_RANKING_RUN = {
    "name": "answers",
    "kind": "matcher",
    "encoder": None,
    "can": {name: name in ("rank", "explain") for name in _ABILITIES},
    "source_tokens": "words",
    "why_no_stream": None,
    "examples": [{"question": "which colour ?", "sentences": ["the house was red", "the owl"]}],
}
EXAMPLES: dict[str, dict[str, Any]] = {
    "runs": {
        "version": "0.1.0",
        "needs_token": False,
        "runs": [_RUN, {**_RUN, **_RANKING_RUN}],
        "limits": {
            "inputs": 256,
            "characters": 2000,
            "body_bytes": 1000000,
            "cells": 300000,
            "candidates": 100,
            "streams": 256,
            "seconds": 30.0,
        },
    },
    "predict": {
        "run": "demo",
        "predictions": [
            {
                "source": "knight",
                "text": "N AY T",
                "reason": None,
                "origin": "model",
                "probability": 0.885,
                "log_probability": -0.122,
                "score": -0.122,
                "alignment": [[1, 0], [2, 1], [5, 2]],
                "source_symbols": _SYMBOLS,
                "unknown": [],
                "tokens": ["N", "AY", "T"],
                "nbest": [
                    {
                        **_CANDIDATE,
                        "token_probabilities": [0.892, 0.997, 0.995, 0.999],
                        "rows": [1, 2, 5],
                        "parts": None,
                    }
                ],
            },
            {
                "source": "",
                "text": None,
                "reason": "the input is empty",
                "origin": "model",
                "probability": None,
                "log_probability": None,
                "score": None,
                "alignment": [],
                "source_symbols": ["</s>"],
                "unknown": [],
                "tokens": [],
                "nbest": [],
            },
        ],
    },
    "score": {
        "run": "demo",
        "scores": [{"log_probability": -0.122, "probability": 0.885, "tokens": 4, "perplexity": 1.031}],
    },
    "align": {
        "run": "demo",
        "alignments": [
            {
                "source": _SYMBOLS,
                "target": ["N", "AY", "T", "</s>"],
                "alignment": [[1, 0], [2, 1], [5, 2]],
                "rows": [1, 2, 5, 6],
                "posterior": [[0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]],
                "method": "alignment",
                "log_probability": -0.122,
            }
        ],
    },
    "rank": {
        "run": "answers",
        "ranking": [{"sentence": "the house was red", "index": 0, "score": 3.1, "probability": 0.957}],
    },
    "tokens": {
        "run": "lm",
        "texts": [
            {
                "text": "knight",
                "log_probability": -12.03,
                "perplexity": 5.58,
                "tokens": [{"token": "k", "probability": 0.013, "rank": 21, "next": [["s", 0.113], ["c", 0.09]]}],
            }
        ],
    },
    "lattice": {
        "run": "demo",
        "ended": True,
        "method": "alignment",
        "source": _SYMBOLS,
        "target": ["N", "AY", "T", "</s>"],
        "text": "N AY T",
        "rows": [1, 2, 5, 6],
        "posterior": [[0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]],
        "write": [[0.06, 0.185, 0.698, 0.033], [1.0, 0.0, 0.999, 0.999]],
        "next": [_NEXT],
        "log_probability": -0.122,
        "probability": 0.885,
        "candidates": [{**_CANDIDATE, "parts": None}],
        "dropped": [
            {
                "text": "K N AY T",
                "tokens": ["K", "N", "AY", "T"],
                "probability": 0.016,
                "log_probability": -4.12,
                "step": 4,
            }
        ],
        "written": 3,
    },
    "cell": {
        "run": "demo",
        "row": 1,
        "column": 0,
        "write": 1.0,
        "read": 0.0,
        "posterior": 1.0,
        "reached": 1.0,
        "best_row": 1,
        "next": [["N", 0.95], ["EY", 0.033]],
        **_NEXT,
    },
}


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
