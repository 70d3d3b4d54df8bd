"""What operators see of the service: its metrics, and the logs of uvicorn.

Requests go to standard output, failures to standard error. Neither holds the service up: a line that nobody takes is
dropped and counted.
"""

import logging
import os
import select
import sys
import time
from typing import TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_AT_ONCE = 4096
"""Bytes that a pipe takes as a whole once it is ready for writing (PIPE_BUF)."""
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


class RequestMetrics:
    """Middleware that counts requests and measures their time; all files of the page are one route."""

    def __init__(self, app: ASGIApp, metrics: ServiceMetrics, routes: frozenset[str]) -> None:
        self.app, self.metrics, self.routes = app, metrics, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, and measures its time."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0

        async def send_noted(message: Message) -> None:
            nonlocal status
            match message["type"]:
                case "http.response.start" | "websocket.http.response.start":
                    status = message["status"]
                case "websocket.accept":
                    status = 101
                case "websocket.close":
                    status = message.get("code", 1000)
            await send(message)

        try:
            await self.app(scope, receive, send_noted)
        except Exception:
            status = 500
            raise  # to uvicorn, which logs it
        finally:
            route = scope["path"] if scope["path"] in self.routes else "page"
            self.metrics.requests.labels(route, str(status)).inc()
            if scope["type"] == "http" and route != "page":
                self.metrics.request_seconds.labels(route).observe(time.perf_counter() - started)


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
    _direct(logging.getLogger("uvicorn.access"), logging.INFO, sys.stdout if access else None, dropped)
    for name in ("antiphon.serve", "uvicorn", "asyncio"):
        _direct(logging.getLogger(name), logging.ERROR, sys.stderr, dropped)


def _direct(logger: logging.Logger, level: int, stream: TextIO | None, dropped: Counter) -> None:
    """Directs a logger to a stream alone; None discards its lines."""
    logger.setLevel(level)
    logger.propagate = False
    handler = logging.NullHandler() if stream is None else UnblockedHandler(stream.fileno(), dropped)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.handlers = [handler]
