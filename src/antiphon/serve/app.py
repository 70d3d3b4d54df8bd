"""The service as an ASGI application: its endpoints, how they fail, and the checks around them."""

import asyncio
import gc
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, Request, WebSocket
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive

from antiphon import __version__
from antiphon.exceptions import AntiphonError
from antiphon.serve.guards import Guard, RefusedError
from antiphon.serve.monitoring import CONTENT_TYPE, RequestMetrics
from antiphon.serve.run_info import warm_up
from antiphon.serve.schemas import (
    AlignBody,
    CellBody,
    LatticeBody,
    PredictBody,
    RankBody,
    RunBody,
    ScoreBody,
    TokensBody,
    describe_errors,
    documented,
)
from antiphon.serve.service import Json, Service
from antiphon.serve.stream_socket import StreamSocket

_SOCKET = "/api/stream"
_CLIENT_GONE = 499
"""What proxies log for a client that has closed the connection before the answer."""
_SENTENCES = {
    404: "no such address, expected one that /openapi.json lists",
    405: "a wrong method, expected one that the header Allow names; /openapi.json lists all",
    500: "the service failed on this request; its log says why",
}
_ENDPOINTS: tuple[tuple[str, type[RunBody], str], ...] = (
    ("predict", PredictBody, "The most probable outputs of inputs, with probabilities and alignments."),
    ("score", ScoreBody, "The probability of given outputs."),
    ("align", AlignBody, "Posterior and best path of given pairs."),
    ("rank", RankBody, "Sentences ranked by how well they answer a question."),
    ("tokens", TokensBody, "Probabilities of the tokens of a text under a language model."),
    ("lattice", LatticeBody, "The lattice of an input, or of its first part, with its best output or a given one."),
    ("cell", CellBody, "One cell of a lattice."),
)
"""The name of each endpoint, which is that of the service's method too, its request body, and what comes back."""


def create_app(service: Service) -> ASGIApp:
    """The whole service: the endpoints, the checks before them, and what is measured."""
    access = service.settings.access
    app = FastAPI(
        title="Antiphon",
        version=__version__,
        description="Sequence-to-sequence runs: predict, score, align, rank, and lattices.",
        docs_url=None,
        redoc_url=None,
        lifespan=lambda _: running(service),
    )
    add_state(app, service)
    for name, kind, description in _ENDPOINTS:
        add_endpoint(app, service, name, kind, description)

    @app.websocket(_SOCKET)
    async def stream(socket: WebSocket) -> None:
        await StreamSocket(service, socket).run()

    routes = frozenset(app.openapi()["paths"]) | {_SOCKET}
    add_pages(app)
    add_errors(app)
    guarded: ASGIApp = Guard(app, access, service.limits)
    if access.origins:
        guarded = CORSMiddleware(
            guarded,
            allow_origins=access.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
            expose_headers=["Retry-After"],
        )
    return RequestMetrics(guarded, service.metrics, routes)


@asynccontextmanager
async def running(service: Service) -> AsyncIterator[None]:
    """Gets ready for requests, and ends the worker threads after the jobs that are running."""
    for name, model in service.models.items():
        await service.batcher.submit_alone(partial(warm_up, model, service.runs[name]))
    gc.collect()
    gc.freeze()  # modules and models stay, and collecting garbage among them would hold up all streams
    service.ready = True
    try:
        yield
    finally:
        service.batcher.stop()


def add_state(app: FastAPI, service: Service) -> None:
    """Adds the endpoints about the service itself."""

    @app.get("/health", tags=["state"])
    async def health() -> Json:
        """Whether the process answers."""
        return {"status": "ok"}

    @app.get("/ready", tags=["state"])
    async def ready() -> Response:
        """Whether requests are taken: 200, or 503 while the service starts or stops."""
        if service.ready and not service.stopping.is_set():
            return JSONResponse({"status": "ready"})
        status = "stopping" if service.stopping.is_set() else "starting"
        return JSONResponse({"status": status}, 503, headers={"Retry-After": "5"})

    @app.get("/metrics", tags=["state"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Metrics in the text format of Prometheus."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    @app.get("/api/runs", tags=["runs"], responses=documented("runs"))
    async def runs() -> Json:
        """What is served, and what each run can do."""
        return service.about()


def add_endpoint(app: FastAPI, service: Service, name: str, kind: type[RunBody], description: str) -> None:
    """Adds ``POST /api/NAME``, which calls the method ``name`` of the service."""

    @app.post(
        f"/api/{name}",
        name=name,
        tags=["runs"],
        responses=documented(name),
        description=description,
        dependencies=[Depends(check_media_type)],
    )
    async def ask(body: kind, request: Request) -> Response:  # type: ignore[valid-type]
        return await answered(service, name, body, request)


async def check_media_type(request: Request) -> None:
    """Refuses a body that is not JSON, such as that of a form, which any web page can send."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RefusedError(415, "the body is of another type, expected Content-Type: application/json")


async def answered(service: Service, name: str, body: RunBody, request: Request) -> Response:
    """The answer, unless it takes too long or the client goes away while it is computed."""
    service.check_running()
    body.run = service.run_name(body.run)
    try:
        async with asyncio.timeout(service.limits.seconds):
            answer = await unless_gone(request.receive, getattr(service, name)(body))
    except TimeoutError:
        service.metrics.refused.labels("seconds").inc()
        raise RefusedError(
            504, f"no answer within {service.limits.seconds:g} seconds, expected a smaller request"
        ) from None
    except AntiphonError as error:
        raise RefusedError(400, str(error)) from None
    return Response(status_code=_CLIENT_GONE) if answer is None else JSONResponse({"run": body.run, **answer})


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, Json]) -> Json | None:
    """The result of the work, which is cancelled when the client goes away: None."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_until_gone(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for each in (task, gone):
            each.cancel()
        with suppress(BaseException):
            await gone


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def add_errors(app: FastAPI) -> None:
    """Answers of requests that are refused or fail: a sentence each."""

    @app.exception_handler(RefusedError)
    async def refused(_: Request, error: RefusedError) -> Response:
        return error.response()

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        errors = error.errors()
        if errors[0]["type"] == "json_invalid" or len(errors[0]["loc"]) < 2:
            return JSONResponse({"error": "the body is no JSON object, expected one; /openapi.json has examples"}, 400)
        return JSONResponse({"error": describe_errors(errors)}, 422)

    @app.exception_handler(Exception)
    async def failed(_: Request, error: Exception) -> Response:
        return JSONResponse({"error": _SENTENCES[500]}, 500)

    @app.exception_handler(HTTPException)
    async def other(_: Request, error: HTTPException) -> Response:
        sentence = _SENTENCES.get(error.status_code, str(error.detail))
        return JSONResponse({"error": sentence}, error.status_code, headers=error.headers)


_PAGE = Path(__file__).parent / "page"


def add_pages(app: FastAPI) -> None:
    """Adds the files of the page by their names, which are known from the start, and the start page as ``/``."""
    files = StaticFiles(directory=_PAGE)
    names = {f"/{path.name}": path.name for path in _PAGE.iterdir()} | {"/": "index.html"}

    async def page_file(request: Request) -> Response:
        response = await files.get_response(names[request.url.path], request.scope)
        response.headers["Cache-Control"] = "no-cache"
        return response

    for path in names:
        app.add_route(path, page_file, include_in_schema=False)
