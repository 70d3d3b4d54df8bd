"""Validation errors of requests as one sentence."""

from collections.abc import Mapping, Sequence
from typing import Any

_UNION_MEMBERS = ("str", "TextInput", "function-after[check_characters(), str]")


def describe_errors(errors: Sequence[Mapping[str, Any]]) -> str:
    """Where the first error is, and what was expected."""
    first = errors[0]
    path = [part for part in first["loc"] if part not in ("body", *_UNION_MEMBERS)]
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    message = str(first["msg"])
    if first["type"] == "extra_forbidden":
        return f"{where[:100]}: unknown key, expected one of the keys in /docs"
    return f"{where[:100] or 'body'}: {message[:1].lower()}{message[1:]}"
