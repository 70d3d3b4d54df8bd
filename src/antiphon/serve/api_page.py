"""The page ``/docs``, which describes all endpoints, made from the OpenAPI schema: plain HTML that loads nothing."""

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Antiphon: endpoints</title><link rel="stylesheet" href="docs.css"></head><body><main>
<h1>Antiphon: endpoints</h1>
<p>Requests and answers are JSON. For programs: <a href="openapi.json">openapi.json</a>. <code>/api/stream</code> is a
WebSocket for streams.</p>
"""
STYLE = """:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
pre { white-space: pre-wrap; padding: .5rem; border: 1px solid; }
table { border-collapse: collapse; } td, th { border: 1px solid; padding: .2rem .5rem; text-align: left; }
"""
Schema = Mapping[str, Any]


def render(openapi: Schema) -> str:
    """The page."""
    parts = [
        part
        for path, methods in openapi["paths"].items()
        for method, route in methods.items()
        for part in _route(path, method, route, openapi)
    ]
    return "\n".join([_HEAD, *parts, "</main></body></html>"])


def _route(path: str, method: str, route: Schema, openapi: Schema) -> Iterator[str]:
    yield f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
    yield f"<p>{escape(route.get('description', ''))}</p>"
    body = _schema_of(route, openapi)
    if body is None:
        return
    yield "<table><thead><tr><th>key</th><th>type</th><th>default</th><th>meaning</th></tr></thead><tbody>"
    yield from (_row(name, key, name in body.get("required", ())) for name, key in body["properties"].items())
    yield "</tbody></table>"
    example = json.dumps(body.get("example", {}), ensure_ascii=False)
    command = f"curl -s http://127.0.0.1:8000{path} -H 'Content-Type: application/json' -d '{example}'"
    yield f"<pre>{escape(command)}</pre>"
    answer = route["responses"]["200"]["content"]["application/json"].get("example")
    yield f"<pre>{escape(json.dumps(answer, ensure_ascii=False))}</pre>"


def _schema_of(route: Schema, openapi: Schema) -> Schema | None:
    """The description of a request's body, if it has one."""
    content = route.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        return None
    found: Schema = openapi["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]
    return found


def _row(name: str, key: Schema, is_required: bool) -> str:
    default = "required" if is_required else json.dumps(key.get("default"))
    cells = (name, _type(key), default, key.get("description", ""))
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _type(key: Schema) -> str:
    if "anyOf" in key:
        return " or ".join(_type(each) for each in key["anyOf"])
    if "$ref" in key:
        return str(key["$ref"].rpartition("/")[2])
    of = f" of {_type(key['items'])}" if key.get("type") == "array" else ""
    return f"{key.get('type', 'any')}{of}"
