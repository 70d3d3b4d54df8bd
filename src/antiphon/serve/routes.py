"""The addresses of the service and their descriptions."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Request, WebSocket
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from antiphon.exceptions import AntiphonError
from antiphon.serve.guards import RefusedError
from antiphon.serve.request_bodies import (
    AlignBody,
    CellBody,
    LatticeBody,
    PredictBody,
    RankBody,
    ScoreBody,
    TokensBody,
)
from antiphon.serve.response_examples import documented
from antiphon.serve.service import Json, Service, as_refusal
from antiphon.serve.service_metrics import CONTENT_TYPE
from antiphon.serve.stream_socket import StreamSocket

SOCKET = "/api/stream"


class ClientGoneError(Exception):
    """The client closed its connection before the answer."""


def create_router(service: Service) -> APIRouter:
    """All addresses but those of the page."""
    router = APIRouter()
    add_state(router, service)
    add_models(router, service)
    add_views(router, service)

    @router.websocket(SOCKET)
    async def stream(socket: WebSocket) -> None:
        await StreamSocket(service, socket).run()

    return router


def add_state(router: APIRouter, service: Service) -> None:
    """The addresses about the service itself."""

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
    """The addresses that ask runs for something."""

    @router.get("/api/runs", tags=["runs"])
    async def runs() -> Json:
        """What is served, and what each run can do."""
        return service.about()

    @router.post("/api/predict", tags=["runs"], responses=documented("predict"))
    async def predict(body: PredictBody, request: Request) -> Response:
        """The most probable outputs of inputs, with probabilities and alignments."""
        return await answered(request, body, service.predict(body), service)

    @router.post("/api/score", tags=["runs"], responses=documented("score"))
    async def score(body: ScoreBody, request: Request) -> Response:
        """The probability of given outputs."""
        return await answered(request, body, service.score(body), service)

    @router.post("/api/align", tags=["runs"], responses=documented("align"))
    async def align(body: AlignBody, request: Request) -> Response:
        """Posterior and best path of given pairs."""
        return await answered(request, body, service.align(body), service)

    @router.post("/api/rank", tags=["runs"], responses=documented("rank"))
    async def rank(body: RankBody, request: Request) -> Response:
        """Sentences ranked by how well they answer a question."""
        return await answered(request, body, service.rank(body), service)


def add_views(router: APIRouter, service: Service) -> None:
    """The addresses that look into runs."""

    @router.post("/api/tokens", tags=["runs"], responses=documented("tokens"))
    async def tokens(body: TokensBody, request: Request) -> Response:
        """Probabilities of the tokens of a text under a language model."""
        return await answered(request, body, service.tokens(body), service)

    @router.post("/api/lattice", tags=["runs"], responses=documented("lattice"))
    async def lattice(body: LatticeBody, request: Request) -> Response:
        """The lattice of an input, or of its first part, with its best output or a given one."""
        return await answered(request, body, service.lattice(body), service)

    @router.post("/api/cell", tags=["runs"], responses=documented("cell"))
    async def cell(body: CellBody, request: Request) -> Response:
        """One cell of a lattice."""
        return await answered(request, body, service.cell(body), service)


async def answered(request: Request, body: Any, work: Coroutine[Any, Any, Json], service: Service) -> Response:
    """The answer, unless it takes too long or the client goes away while it is computed."""
    request.scope["antiphon"] = {"run": body.run, "inputs": len(getattr(body, "inputs", ())) or 1}
    try:
        async with asyncio.timeout(service.limits.seconds):
            return JSONResponse(await unless_gone(request.receive, work))
    except TimeoutError:
        service.metrics.refused.increment("seconds")
        raise RefusedError(504, f"no answer within {service.limits.seconds:g} seconds, expected less to do") from None
    except AntiphonError as error:
        raise as_refusal(error) from None


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
