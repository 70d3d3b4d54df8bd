"""The service as an ASGI application: all addresses, and what stands before them."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from antiphon import __version__
from antiphon.api import Model
from antiphon.serve.guards import Guard, SecurityHeaders
from antiphon.serve.page_files import INDEX, PageFile, read_page
from antiphon.serve.run_info import describe
from antiphon.serve.service_settings import ServiceSettings


def create_app(models: Mapping[str, Model], settings: ServiceSettings) -> ASGIApp:
    """The whole service: guards around the addresses."""
    app = FastAPI(title="Antiphon", version=__version__, docs_url=None, redoc_url=None)
    add_runs(app, models)
    add_page(app, read_page())
    app.add_exception_handler(HTTPException, _sentence)
    return SecurityHeaders(Guard(app, settings.access, settings.limits))


def add_runs(app: FastAPI, models: Mapping[str, Model]) -> None:
    """The address that lists the runs."""
    runs = [describe(name, model) for name, model in models.items()]

    @app.get("/api/runs")
    async def list_runs() -> dict[str, Any]:
        """What is served, and what each run can do."""
        return {"version": __version__, "runs": runs}


def add_page(app: FastAPI, files: Mapping[str, PageFile]) -> None:
    """The addresses of the page: its files by their names, ``/`` is its start."""

    @app.get("/{name:path}", include_in_schema=False)
    async def page_file(name: str, request: Request) -> Response:
        """A file of the page."""
        found = files.get(name or INDEX)
        if found is None:
            raise HTTPException(404, "no such address, expected one of /docs")
        headers = {"ETag": found.etag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == found.etag:
            return Response(status_code=304, headers=headers)
        return Response(found.body, media_type=found.media_type, headers=headers)


async def _sentence(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail)}, error.status_code, headers=error.headers)
