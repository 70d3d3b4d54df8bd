"""The endpoints of the service and their descriptions."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Depends, Request, WebSocket
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from antiphon.exceptions import AntiphonError
from antiphon.serve.guards import RefusedError
from antiphon.serve.request_bodies import (
    AlignBody,
    Body,
    CellBody,
    LatticeBody,
    PredictBody,
    RankBody,
    ScoreBody,
    TokensBody,
)
from antiphon.serve.response_examples import REFUSALS, documented
from antiphon.serve.service import Json, Service
from antiphon.serve.service_metrics import CONTENT_TYPE
from antiphon.serve.stream_socket import StreamSocket

SOCKET = "/api/stream"


class ClientGoneError(Exception):
    """The client closed its connection before the answer."""


def create_router(service: Service) -> APIRouter:
    """All endpoints but those of the page."""
    router = APIRouter()
    add_state(router, service)
    add_models(router, service)

    @router.websocket(SOCKET)
    async def stream(socket: WebSocket) -> None:
        await StreamSocket(service, socket).run()

    return router


def add_state(router: APIRouter, service: Service) -> None:
    """The endpoints about the service itself."""

    @router.get("/health", tags=["state"])
    async def health() -> Json:
        """Whether the process answers."""
        return {"status": "ok"}

    @router.get("/ready", tags=["state"])
    async def ready() -> Response:
        """Whether requests are taken: 200, or 503 while the service starts or stops."""
        if service.ready and not service.stopping.is_set():
            return JSONResponse({"status": "ready"})
        status = "stopping" if service.stopping.is_set() else "starting"
        return JSONResponse({"status": status}, 503, headers={"Retry-After": "5"})

    @router.get("/metrics", tags=["state"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Metrics in the text format of Prometheus."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)


def add_models(router: APIRouter, service: Service) -> None:
    """The endpoints that compute something with runs."""

    @router.get("/api/runs", tags=["runs"], responses=REFUSALS)
    async def runs() -> Json:
        """What is served, and what each run can do."""
        return service.about()

    for name, kind, description in _ENDPOINTS:
        add_endpoint(router, service, name, kind, description)


_ENDPOINTS: tuple[tuple[str, type[Body], str], ...] = (
    ("predict", PredictBody, "The most probable outputs of inputs, with probabilities and alignments."),
    ("score", ScoreBody, "The probability of given outputs."),
    ("align", AlignBody, "Posterior and best path of given pairs."),
    ("rank", RankBody, "Sentences ranked by how well they answer a question."),
    ("tokens", TokensBody, "Probabilities of the tokens of a text under a language model."),
    ("lattice", LatticeBody, "The lattice of an input, or of its first part, with its best output or a given one."),
    ("cell", CellBody, "One cell of a lattice."),
)
"""The name of each endpoint, which is that of the service's method too, its request body, and what comes back."""


def add_endpoint(router: APIRouter, service: Service, name: str, kind: type[Body], description: str) -> None:
    """Adds ``POST /api/NAME``, which calls the method ``name`` of the service."""
    answer = getattr(service, name)

    async def ask(body: kind, request: Request) -> Response:  # type: ignore[valid-type]
        body.run = service.run_name(body.run)  # type: ignore[attr-defined]
        return await answered(request, body, answer(body), service)

    documentation = {
        "tags": ["runs"],
        "responses": documented(name),
        "description": description,
        "dependencies": [Depends(check_media_type)],
    }
    router.add_api_route(f"/api/{name}", ask, methods=["POST"], name=name, **documentation)  # type: ignore[arg-type]


async def check_media_type(request: Request) -> None:
    """Refuses a body that is not JSON, such as that of a form, which any web page can send."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RefusedError(415, "the body is of another type, expected Content-Type: application/json")


async def answered(request: Request, body: Any, work: Coroutine[Any, Any, Json], service: Service) -> Response:
    """The answer, unless it takes too long or the client goes away while it is computed."""
    request.scope["antiphon"] = {"run": body.run[:100], "inputs": body.item_count}
    try:
        async with asyncio.timeout(service.limits.seconds):
            return JSONResponse(await unless_gone(request.receive, work))
    except TimeoutError:
        service.metrics.refused.labels("seconds").inc()
        raise RefusedError(
            504, f"no answer within {service.limits.seconds:g} seconds, expected a smaller request"
        ) from None
    except AntiphonError as error:
        raise RefusedError.of(error) from None


async def unless_gone(receive: Callable[[], Awaitable[Any]], work: Coroutine[Any, Any, Json]) -> Json:
    """The result of the work, which is cancelled when the client goes away."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_until_gone(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return task.result()
    finally:
        for each in (task, gone):
            each.cancel()
        with suppress(BaseException):
            await gone


async def _until_gone(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
