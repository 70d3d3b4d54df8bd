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


def documented(name: str) -> dict[int | str, dict[str, Any]]:
    """How the answers of an endpoint are described."""
    return {200: {"description": "The answer.", "content": {"application/json": {"example": EXAMPLES[name]}}}}
