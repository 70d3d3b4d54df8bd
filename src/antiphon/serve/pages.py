"""What a browser loads: the files of the page, and ``/docs``, which describes all endpoints in plain HTML."""

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response

FOLDER = Path(__file__).parent / "page"
_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Antiphon: endpoints</title><link rel="stylesheet" href="docs.css"></head><body><main>
<h1>Antiphon: endpoints</h1>
<p>Requests and answers are JSON. For programs: <a href="openapi.json">openapi.json</a>. <code>/api/stream</code> is a
WebSocket for streams.</p>
"""
_STYLE = """:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
pre { white-space: pre-wrap; padding: .5rem; border: 1px solid; }
table { border-collapse: collapse; } td, th { border: 1px solid; padding: .2rem .5rem; text-align: left; }
"""
Schema = Mapping[str, Any]


class PageFile(NamedTuple):
    """One file of the page; ``etag`` changes with its content."""

    body: bytes
    media_type: str
    etag: str


def read_page() -> dict[str, PageFile]:
    """The files of the page by their addresses, read once: no request reaches the disk."""
    files = {}
    for path in sorted(FOLDER.rglob("*")):
        if path.suffix in _TYPES:
            body = path.read_bytes()
            file = PageFile(body, _TYPES[path.suffix], f'"{sha256(body).hexdigest()[:32]}"')
            files[f"/{path.relative_to(FOLDER).as_posix()}"] = file
    return {"/": files["/index.html"], **files}


def add_pages(app: FastAPI) -> None:
    """Adds the files of the page by their names, the start page as ``/``, and ``/docs``."""
    files = read_page()

    async def page_file(request: Request) -> Response:
        file = files[request.url.path]
        headers = {"ETag": file.etag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == file.etag:
            return Response(status_code=304, headers=headers)
        return Response(file.body, media_type=file.media_type, headers=headers)

    for path in files:
        app.add_route(path, page_file, include_in_schema=False)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse("\n".join(_docs(app.openapi())))

    @app.get("/docs.css", include_in_schema=False)
    async def docs_style() -> Response:
        return Response(_STYLE, media_type="text/css")


def _docs(openapi: Schema) -> Iterator[str]:
    """The lines of ``/docs``."""
    yield _HEAD
    for path, methods in openapi["paths"].items():
        for method, route in methods.items():
            yield f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
            yield f"<p>{escape(route.get('description', ''))}</p>"
            if "requestBody" in route:
                yield from _described(path, route, openapi)
    yield "</main></body></html>"


def _described(path: str, route: Schema, openapi: Schema) -> Iterator[str]:
    """The keys of a request as a table, an example, and its answer."""
    name = _last_name(route["requestBody"]["content"]["application/json"]["schema"])
    body = openapi["components"]["schemas"][name]
    yield "<table><thead><tr><th>key</th><th>type</th><th>default</th><th>meaning</th></tr></thead><tbody>"
    for name, key in body["properties"].items():
        default = "required" if name in body.get("required", ()) else json.dumps(key.get("default"))
        cells = (name, _type(key), default, key.get("description", ""))
        yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
    yield "</tbody></table>"
    example = json.dumps(body["example"], ensure_ascii=False)
    yield _pre(f"curl -s http://127.0.0.1:8000{path} -H 'Content-Type: application/json' -d '{example}'")
    answer = route["responses"]["200"]["content"]["application/json"]["example"]
    yield _pre(json.dumps(answer, ensure_ascii=False))


def _pre(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def _type(key: Schema) -> str:
    """The type of a key in words."""
    if "anyOf" in key:
        return " or ".join(_type(each) for each in key["anyOf"])
    if "$ref" in key:
        return _last_name(key)
    of = f" of {_type(key['items'])}" if key.get("type") == "array" else ""
    return f"{key.get('type', 'any')}{of}"


def _last_name(reference: Schema) -> str:
    """The name of the schema that is referred to."""
    return str(reference["$ref"]).rpartition("/")[2]
