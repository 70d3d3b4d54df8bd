"""What operators see of the service: its metrics, a log of requests, and one of failures.

The access log has one JSON object for every request and every stream, without any of their text. It goes to standard
output, failures to standard error, both by the module ``logging``, and neither holds the service up: a line that nobody
takes is dropped and counted.
"""

import json
import logging
import os
import re
import select
import sys
import time
from datetime import UTC, datetime
from typing import Any, TextIO
from uuid import uuid4

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUEST_ID = b"x-request-id"
"""The header that names a request, in its answer too."""
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_SERVED = (200, 304)
"""Files of the page with one of these are not logged: there are dozens for every visit."""
_AT_ONCE = 4096
"""Bytes that a pipe takes as a whole once it is ready for writing (PIPE_BUF)."""
_access = logging.getLogger("antiphon.serve.access")
disable_created_metrics()  # type: ignore[no-untyped-call]


class ServiceMetrics:
    """All metrics, for Prometheus."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(name, meaning, labels, registry=registry)

        def histogram(name: str, meaning: str, *labels: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
            return Histogram(name, meaning, labels, registry=registry, buckets=buckets)

        self.requests = counter("antiphon_requests", "Requests by route and status.", "route", "status")
        self.request_seconds = histogram("antiphon_request_seconds", "Time from request to answer.", "route")
        self.refused = counter("antiphon_refused", "Requests refused by a limit.", "limit")
        self.dropped = counter("antiphon_dropped", "Jobs dropped because their client has gone.")
        self.log_dropped = counter("antiphon_log_dropped", "Lines of the log that nobody took.")
        self.batch_items = histogram("antiphon_batch_items", "Inputs that were computed together.", buckets=_ITEMS)
        self.batch_seconds = histogram("antiphon_batch_seconds", "Time of one computation.")
        self.stream_seconds = histogram("antiphon_stream_step_seconds", "Time from a piece of input to its events.")
        self.tokens = counter("antiphon_stream_tokens", "Tokens that streams read and wrote.", "event")
        self.queue = Gauge("antiphon_queue_items", "Inputs that wait to be computed.", registry=registry)
        self.streams = Gauge("antiphon_open_streams", "Open streams.", registry=registry)

    def text(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self.registry)


class AccessLog:
    """Middleware that logs and counts requests; files of the page are only logged if they are refused."""

    def __init__(self, app: ASGIApp, metrics: ServiceMetrics, routes: frozenset[str]) -> None:
        self.app, self.metrics, self.routes = app, metrics, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, and measures its time."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        started, status, size, request_id = time.perf_counter(), 0, 0, id_of(scope)

        async def send_noted(message: Message) -> None:
            nonlocal status, size
            match message["type"]:
                case "http.response.start" | "websocket.http.response.start":
                    status = message["status"]
                    message = {**message, "headers": [*message["headers"], (REQUEST_ID, request_id.encode())]}
                case "websocket.accept":
                    status = 101
                case "websocket.close":
                    status = message.get("code", 1000)
                case _:
                    size += len(message.get("body", b"") or (message.get("text") or "").encode())
            await send(message)

        try:
            await self.app(scope, receive, send_noted)
        except Exception:
            status = 500
            raise  # to uvicorn, which logs it
        finally:
            self._log(scope, request_id, status, size, time.perf_counter() - started)

    def _log(self, scope: Scope, request_id: str, status: int, size: int, seconds: float) -> None:
        route = scope["path"] if scope["path"] in self.routes else "page"
        self.metrics.requests.labels(route, str(status)).inc()
        if scope["type"] == "http" and route != "page":
            self.metrics.request_seconds.labels(route).observe(seconds)
        if route == "page" and scope["path"] != "/" and status in _SERVED:
            return
        entry: dict[str, Any] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "id": request_id,
            "client": scope["client"][0] if scope.get("client") else None,
            "method": scope.get("method", "SOCKET"),
            "path": scope["path"][:200],
            "status": status,
            "bytes": size,
            "seconds": round(seconds, 6),
            **scope.get("antiphon", {}),
        }
        _access.info(json.dumps(entry))


def id_of(scope: Scope) -> str:
    """The id that a request brings along, such as that of a reverse proxy, or a new one."""
    given = dict(scope["headers"]).get(REQUEST_ID, b"").decode("latin-1")
    return given if _REQUEST_ID.fullmatch(given) else uuid4().hex


class UnblockedHandler(logging.Handler):
    """Writes lines to a file descriptor; those that would have to wait, or that cannot be written, are counted."""

    def __init__(self, descriptor: int, dropped: Counter) -> None:
        super().__init__()
        self.descriptor, self.dropped = descriptor, dropped

    def emit(self, record: logging.LogRecord) -> None:
        """Writes the line of a record, unless nobody takes it."""
        line = f"{self.format(record)}\n".encode(errors="backslashreplace")
        try:
            for start in range(0, len(line), _AT_ONCE):
                self._write(line[start : start + _AT_ONCE])
        except OSError:
            self.dropped.inc()

    def _write(self, part: bytes) -> None:
        if hasattr(select, "poll"):  # not on Windows
            poll = select.poll()
            poll.register(self.descriptor, select.POLLOUT)
            if not poll.poll(0):
                raise BlockingIOError
        os.write(self.descriptor, part)


def start_log(dropped: Counter, *, access: bool) -> None:
    """Directs the log of this process to standard output (requests, unless ``access`` is False) and error."""
    _direct(_access, logging.INFO, sys.stdout if access else None, dropped)
    for name in ("antiphon.serve", "uvicorn", "asyncio"):
        _direct(logging.getLogger(name), logging.ERROR, sys.stderr, dropped)


def _direct(logger: logging.Logger, level: int, stream: TextIO | None, dropped: Counter) -> None:
    """Directs a logger to a stream alone; None discards its lines."""
    logger.setLevel(level)
    logger.propagate = False
    logger.handlers = [logging.NullHandler() if stream is None else UnblockedHandler(stream.fileno(), dropped)]
