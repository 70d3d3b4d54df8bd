"""The access log: one JSON object for every request and every stream, without any of their text.

Files of the page are left out unless they are refused.
"""

import json
import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from antiphon.serve.guards import RefusedError, refuse
from antiphon.serve.routes import ClientGoneError
from antiphon.serve.service_metrics import ServiceMetrics

_CLIENT_GONE = 499
"""What proxies log for a client that has closed the connection before the answer."""
_SERVED = (200, 304)
"""Files of the page with one of these are not logged: there are dozens for every visit."""
FAILED = "the service failed on this request; its log says why"


def print_line(line: str) -> None:
    """Writes a line of the log to standard output."""
    print(line, flush=True)


class AccessLog:
    """Middleware that logs and counts requests, and answers with status 500 after an unexpected error."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: ServiceMetrics,
        routes: frozenset[str],
        write: Callable[[str], None] | None = print_line,
    ) -> None:
        self.app, self.metrics, self.routes, self.write = app, metrics, routes, write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, and measures its time."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        answer = _Answer(scope["type"] == "websocket")
        started = time.perf_counter()

        async def send_noted(message: Message) -> None:
            answer.note(message)
            await send(message)

        try:
            await self.app(scope, receive, send_noted)
        except ClientGoneError:
            answer.status = _CLIENT_GONE
        except Exception:
            traceback.print_exc(file=sys.stderr)
            if not answer.status:
                await refuse(scope, send_noted, RefusedError(500, FAILED))
            answer.status = 500
        finally:
            self._log(scope, answer, time.perf_counter() - started)

    def _log(self, scope: Scope, answer: "_Answer", seconds: float) -> None:
        route = scope["path"] if scope["path"] in self.routes else "page"
        self.metrics.requests.increment(route, str(answer.status))
        if scope["type"] == "http":
            self.metrics.request_seconds.observe(seconds)
        is_page_file = route == "page" and scope["path"] != "/" and answer.status in _SERVED
        if self.write is None or is_page_file:
            return
        entry: dict[str, Any] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "client": scope["client"][0] if scope.get("client") else None,
            "method": scope.get("method", "SOCKET"),
            "path": scope["path"][:200],
            "status": answer.status,
            "bytes": answer.bytes,
            "seconds": round(seconds, 6),
            **scope.get("antiphon", {}),
        }
        self.write(json.dumps(entry))


class _Answer:
    """Status and size of an answer; of a socket, its close code."""

    def __init__(self, is_socket: bool) -> None:
        self.is_socket, self.status, self.bytes = is_socket, 0, 0

    def note(self, message: Message) -> None:
        """Records the status and the size of what is sent."""
        kind = message["type"]
        if kind in ("http.response.start", "websocket.http.response.start"):
            self.status = message["status"]
        elif kind == "websocket.accept":
            self.status = 101
        elif kind == "websocket.close":
            self.status = message.get("code", 1000)
        else:
            self.bytes += len(message.get("body", b"") or (message.get("text") or "").encode())
