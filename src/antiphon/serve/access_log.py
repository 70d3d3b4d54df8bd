"""The access log: one JSON object for every request and every stream, without any of their text.

Files of the page are left out unless they are refused.
"""

import json
import logging
import time
from datetime import UTC, datetime
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from antiphon.serve.guards import RefusedError, refuse
from antiphon.serve.routes import ClientGoneError
from antiphon.serve.service_log import ACCESS
from antiphon.serve.service_metrics import ServiceMetrics

_CLIENT_GONE = 499
"""What proxies log for a client that has closed the connection before the answer."""
_SERVED = (200, 304)
"""Files of the page with one of these are not logged: there are dozens for every visit."""
_access, _log = logging.getLogger(ACCESS), logging.getLogger(__name__)
FAILED = "the service failed on this request; its log says why"


class AccessLog:
    """Middleware that logs and counts requests, and answers with status 500 after an unexpected error."""

    def __init__(self, app: ASGIApp, metrics: ServiceMetrics, routes: frozenset[str]) -> None:
        self.app, self.metrics, self.routes = app, metrics, routes

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
            _log.exception("a request to %s failed", scope["path"][:200])
            if not answer.status:
                await refuse(scope, send_noted, RefusedError(500, FAILED))
            answer.status = 500
        finally:
            self._log(scope, answer, time.perf_counter() - started)

    def _log(self, scope: Scope, answer: "_Answer", seconds: float) -> None:
        route = scope["path"] if scope["path"] in self.routes else "page"
        self.metrics.requests.labels(route, str(answer.status)).inc()
        if scope["type"] == "http" and route != "page":
            self.metrics.request_seconds.labels(route).observe(seconds)
        if route == "page" and scope["path"] != "/" and answer.status in _SERVED:
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
        _access.info(json.dumps(entry))


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
