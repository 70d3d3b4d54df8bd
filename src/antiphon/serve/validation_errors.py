"""Validation errors of requests as one sentence."""

from collections.abc import Mapping, Sequence
from typing import Any

_UNION_MEMBERS = ("str", "TextInput", "function-after[check_characters(), str]")


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
