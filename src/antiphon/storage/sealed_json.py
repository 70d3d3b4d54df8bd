"""JSON objects that contain their own SHA-256, so that any change of the file is noticed."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def render_sealed(table: Mapping[str, Any]) -> str:
    """A JSON object as text, with its digest under the key ``sha256``."""
    rest = {name: value for name, value in table.items() if name != "sha256"}
    digest = hashlib.sha256(json.dumps(rest).encode()).hexdigest()
    return json.dumps(rest | {"sha256": digest}, indent=2) + "\n"


def parse_sealed(content: bytes) -> dict[str, Any]:
    """The object that ``render_sealed`` wrote; anything else is a ``ValueError`` that says why."""
    try:
        table = json.loads(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(table, dict):
        raise ValueError("not a JSON object")
    if content != render_sealed(table).encode():
        raise ValueError("its SHA-256 differs")
    return table
