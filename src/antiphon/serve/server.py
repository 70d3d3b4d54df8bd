"""The process that serves: uvicorn with one application, stopped by SIGTERM or Ctrl-C after what is running."""

import asyncio
import socket
import sys
from collections.abc import Mapping
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from antiphon.api.model import Model
from antiphon.exceptions import InputError, Terminated, raise_on_signals
from antiphon.serve.app import create_app
from antiphon.serve.monitoring import start_log
from antiphon.serve.service import Service
from antiphon.serve.settings import Access, ServiceSettings

_BACKLOG = 1024
_SWITCH_SECONDS = 0.0005
"""Interpreter switch interval: the event loop and the worker thread alternate in short turns."""
_CONNECTIONS = 1000
"""Connections besides those of streams."""
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_SECURITY_HEADERS = [
    ("content-security-policy", _POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
]
"""Headers of every answer, which keep a browser from loading or leaking anything."""


class TimedProtocol(H11Protocol):
    """HTTP that closes a connection whose next request does not arrive in time."""

    head_seconds = 15.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the clock."""
        super().connection_made(transport)
        self._timer: asyncio.TimerHandle | None = None
        self._is_upgraded = False
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Stops the clock once the head of a request is complete."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the clock."""
        self._stop_timer()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: Any) -> None:
        """Stops the clock: sockets have limits of their own."""
        self._is_upgraded = True
        super().handle_websocket_upgrade(event)

    def _watch(self) -> None:
        waits = self.cycle is None or self.cycle.response_complete
        if self._is_upgraded or not waits:
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.head_seconds, self._close_unfinished)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_unfinished(self) -> None:
        self._timer = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


class GracefulServer(uvicorn.Server):
    """Takes no new work once it is stopped, and finishes what is running."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts, and says where."""
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            names = ", ".join(self.service.models)
            print(f"antiphon: serving {names} on http://{shown}:{port} (Ctrl-C stops)", file=sys.stderr, flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuses new work, finishes what is running, then closes all connections."""
        self.service.stopping.set()
        await self.service.batcher.drain(self.service.limits.grace_seconds)
        await super().shutdown(sockets)


def serve(models: Mapping[str, Model], settings: ServiceSettings) -> None:
    """Serves until the process is stopped; SIGTERM is an orderly end."""
    raise_on_signals()
    sys.setswitchinterval(_SWITCH_SECONDS)
    listening = listen(settings.access)
    service = Service(models, settings)
    start_log(service.metrics.log_dropped, access=settings.access_log)
    config = uvicorn.Config(
        create_app(service),
        http=TimedProtocol,
        ws="websockets-sansio",
        ws_max_size=settings.limits.body_bytes,
        log_config=None,
        server_header=False,
        headers=_SECURITY_HEADERS,
        limit_concurrency=settings.limits.streams + _CONNECTIONS,
        timeout_graceful_shutdown=int(settings.limits.grace_seconds),
        forwarded_allow_ips=None,
    )
    try:
        GracefulServer(config, service).run(sockets=[listening])
    except Terminated:
        pass
    finally:
        listening.close()


def listen(access: Access) -> socket.socket:
    """The socket to listen on; an address that cannot be used is refused."""
    family = socket.AF_INET6 if ":" in access.host else socket.AF_INET
    try:
        return socket.create_server((access.host, access.port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"--host {access.host} --port {access.port}: {reason.lower()}, expected a free one") from None
