"""Examples of answers, for the description of the endpoints."""

from typing import Any

_SYMBOLS = ["k", "n", "i", "g", "h", "t", "</s>"]
_CANDIDATE = {
    "text": "N AY T",
    "tokens": ["N", "AY", "T"],
    "probability": 0.885,
    "log_probability": -0.122,
    "score": -0.122,
}
_NEXT = {"summed": [["N", 0.892], ["K", 0.06]], "best_path": [["N", 0.95], ["EY", 0.033]], "read_on": 0.0}
EXAMPLES: dict[str, dict[str, Any]] = {
    "predict": {
        "run": "demo",
        "predictions": [
            {
                "source": "knight",
                **{key: _CANDIDATE[key] for key in ("text", "probability", "log_probability", "score")},
                "reason": None,
                "source_symbols": _SYMBOLS,
                "tokens": ["N", "AY", "T"],
                "alignment": [[1, 0], [2, 1], [5, 2]],
                "unknown": [],
                "candidates": [
                    {
                        **_CANDIDATE,
                        "token_probabilities": [0.892, 0.997, 0.995, 0.999],
                        "rows": [1, 2, 5],
                        "parts": None,
                    }
                ],
            }
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


_ERROR = {"error": "inputs: empty, expected at least one"}


def documented(name: str) -> dict[int | str, dict[str, Any]]:
    """How the answers of an endpoint are described."""
    return {200: _described("The answer.", EXAMPLES[name])} | REFUSALS


def _described(description: str, example: dict[str, Any]) -> dict[str, Any]:
    return {
        "description": description,
        "content": {"application/json": {"schema": schema_of(example), "example": example}},
    }


def schema_of(example: Any) -> dict[str, Any]:
    """The JSON schema of answers like this one; what is null here may be anything."""
    if isinstance(example, dict):
        properties = {key: schema_of(value) for key, value in example.items()}
        return {"type": "object", "properties": properties, "required": list(properties)}
    if isinstance(example, list):
        kinds = [schema_of(value) for value in example]
        one_kind = bool(kinds) and all(kind == kinds[0] for kind in kinds)
        return {"type": "array", "items": kinds[0] if one_kind else {}}
    types = {bool: "boolean", int: "integer", str: "string"}
    # Other numbers and some texts may be null, as that of an input without an output.
    return {} if example is None else {"type": types.get(type(example), ["number", "null"])}


REFUSALS: dict[int | str, dict[str, Any]] = {
    "4XX": _described("The request is refused: a sentence says why.", _ERROR),
    "5XX": _described("The service fails, stops or is too slow: a sentence says which.", _ERROR),
}
