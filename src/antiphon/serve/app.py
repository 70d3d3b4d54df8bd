"""The service as an ASGI application: its endpoints and the middleware around them."""

import asyncio
import gc
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from antiphon import __version__
from antiphon.serve.access_log import FAILED, AccessLog
from antiphon.serve.api_page import STYLE, render
from antiphon.serve.guards import Guard, RefusedError, SecurityHeaders
from antiphon.serve.page_files import INDEX, PageFile, read_page
from antiphon.serve.routes import SOCKET, create_router
from antiphon.serve.service import Service
from antiphon.serve.validation_errors import describe_errors
from antiphon.serve.warm_up import warm_up

_SENTENCES = {
    404: "no such address, expected one that /docs lists",
    405: "a wrong method, expected one that the header Allow names; /docs lists all",
}


def create_app(service: Service) -> ASGIApp:
    """The whole service: the endpoints within guards, security headers and the access log."""
    settings = service.settings
    app = FastAPI(
        title="Antiphon",
        version=__version__,
        description="Sequence-to-sequence runs: predict, score, align, rank, and lattices.",
        docs_url=None,
        redoc_url=None,
        lifespan=lambda _: running(service),
    )
    app.include_router(create_router(service))
    routes = frozenset(app.openapi()["paths"]) | {SOCKET}
    add_page(app, read_page())
    add_errors(app)
    guarded: ASGIApp = Guard(app, settings.access, settings.limits)
    if settings.access.origins:
        guarded = CORSMiddleware(
            guarded,
            allow_origins=settings.access.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
            expose_headers=["Retry-After"],
        )
    return AccessLog(SecurityHeaders(guarded), service.metrics, routes)


@asynccontextmanager
async def running(service: Service) -> AsyncIterator[None]:
    """Gets ready for requests, and ends the worker threads after the jobs that are running."""
    await warm_up(service)
    gc.collect()
    gc.freeze()  # modules and models stay, and collecting garbage among them would hold up all streams
    service.ready = True
    watching = asyncio.ensure_future(service.watch_sockets())
    try:
        yield
    finally:
        watching.cancel()
        service.batcher.stop()


def add_page(app: FastAPI, files: Mapping[str, PageFile]) -> None:
    """The files of the page by their names, the start page as ``/``, and ``/docs``, which describes the endpoints."""

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(render(app.openapi()))

    @app.get("/docs.css", include_in_schema=False)
    async def docs_style() -> Response:
        return Response(STYLE, media_type="text/css; charset=utf-8")

    async def page_file(request: Request) -> Response:
        found = files[request.url.path.removeprefix("/") or INDEX]
        headers = {"ETag": found.etag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == found.etag:
            return Response(status_code=304, headers=headers)
        return Response(found.body, media_type=found.media_type, headers=headers)

    for name in ("", *files):
        app.add_route(f"/{name}", page_file, include_in_schema=False)


def add_errors(app: FastAPI) -> None:
    """Answers of refused requests: a sentence each."""

    @app.exception_handler(RefusedError)
    async def refused(_: Request, error: RefusedError) -> Response:
        headers = {name.decode(): value.decode() for name, value in error.headers}
        return JSONResponse({"error": error.message}, error.status, headers=headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        errors = error.errors()
        if errors[0]["type"] == "json_invalid" or len(errors[0]["loc"]) < 2:
            return JSONResponse({"error": "the body is not a JSON object, expected one; /docs has examples"}, 400)
        return JSONResponse({"error": describe_errors(errors)}, 422)

    @app.exception_handler(Exception)
    async def failed(_: Request, error: Exception) -> Response:
        return JSONResponse({"error": FAILED}, 500)

    @app.exception_handler(HTTPException)
    async def other(_: Request, error: HTTPException) -> Response:
        sentence = _SENTENCES.get(error.status_code, str(error.detail))
        return JSONResponse({"error": sentence}, error.status_code, headers=error.headers)
