"""Checks of every request before anything reads it: host, token, origin, size, speed; and the form for the token."""

import asyncio
import hmac
import time
from collections import deque
from collections.abc import Mapping
from hashlib import sha256
from urllib.parse import SplitResult, parse_qs, urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from antiphon.serve.settings import Access, Limits

COOKIE = "antiphon_session"
LOGIN = "/login"
_OPEN = frozenset({"/health", "/ready", "/style.css", "/icon.svg", "/login.js"})
"""What is served without a token: what probes ask for, and the files of the login form."""
_FAILURES, _FAILURE_SECONDS = 5, 1.0
"""Wrong tokens that the login form takes in this many seconds, of all clients together."""
_CLOSE = {"Connection": "close"}
_FORM = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Antiphon: token</title><link rel="icon" href="icon.svg"><link rel="stylesheet" href="style.css">
<script src="login.js"></script></head>
<body class="login"><main><h1><img src="icon.svg" alt="" width="22" height="22"> antiphon</h1>
<form method="post" action="login"><label for="token">Token of this service</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button>Enter</button></form>{note}</main></body></html>
"""


class RefusedError(Exception):
    """A request that is not answered: its status, a sentence, and further headers."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, dict(headers or {})

    def response(self) -> Response:
        """The answer to the client."""
        return JSONResponse({"error": self.message}, self.status, {"Cache-Control": "no-store", **self.headers})


class Guard:
    """Refuses requests of wrong hosts, without the token, of other origins, or that are too large or too slow."""

    def __init__(self, app: ASGIApp, access: Access, limits: Limits) -> None:
        self.app, self.access, self.limits = app, access, limits
        self.session = session_of(access.token) if access.token is not None else ""
        self._failures = deque[float](maxlen=_FAILURES)
        """When the login form got the last wrong tokens."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes on what is not refused."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        request = HTTPConnection(scope)
        try:
            self.check_host(request)
            if scope["path"] == LOGIN and scope["type"] == "http":
                await (await self.log_in(request, receive))(scope, receive, send)
                return
            self.check_token(request)
            self.check_origin(request)
            received = await self.read_body(request, receive)
        except RefusedError as refusal:
            await answer_to(refusal, request)(scope, receive, send)
            return
        if scope.get("method") == "HEAD":  # answered like GET; the server leaves the body out
            scope = {**scope, "method": "GET"}
        await self.app(scope, received, send)

    def check_host(self, request: HTTPConnection) -> None:
        """Refuses a host name that is not served: another site may have pointed its name to this machine."""
        known = self.access.known_hosts
        if known is not None and (split(f"//{request.headers.get('host', '')}").hostname or "") not in known:
            raise RefusedError(
                403, "the header Host names a host that is not served here, expected one of --allow-host"
            )

    def check_token(self, request: HTTPConnection) -> None:
        """Refuses a request without the token, in the header Authorization or as the cookie of a session."""
        token = self.access.token
        if token is None or request.scope["path"] in _OPEN:
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        given = given.strip().encode("latin-1").decode("utf-8", "surrogateescape")
        as_header = scheme.lower() == "bearer" and equal(given, token)
        as_cookie = equal(request.cookies.get(COOKIE, ""), self.session)
        if not (as_header or as_cookie):
            message = "no token or a wrong one, expected the header Authorization: Bearer TOKEN"
            raise RefusedError(401, message, {"WWW-Authenticate": 'Bearer realm="antiphon"'})

    def check_origin(self, request: HTTPConnection) -> None:
        """Refuses sockets and changes that a page of another origin asks for; programs send no origin."""
        origin = request.headers.get("origin")
        is_read = request.scope.get("method") in ("GET", "HEAD")  # a socket has no method
        if origin is None or is_read or origin in self.access.origins:
            return
        if not origin or split(origin).netloc.lower() != request.headers.get("host", "").lower():
            raise RefusedError(403, "the request comes from a page of another origin, expected one of --allow-origin")

    async def read_body(self, request: HTTPConnection, receive: Receive) -> Receive:
        """A ``receive`` that replays the body, once all of it has arrived in time and within its limit."""
        if request.scope.get("method", "GET") in ("GET", "HEAD", "OPTIONS"):
            return receive
        declared = request.headers.get("content-length", "0")
        if not declared.isdecimal() or int(declared) > self.limits.body_bytes:
            raise self._too_large()
        try:
            async with asyncio.timeout(self.limits.seconds):
                body = await self._collect(receive)
        except TimeoutError:
            raise RefusedError(408, f"the body did not arrive within {self.limits.seconds:g} seconds", _CLOSE) from None
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_again() -> Message:
            return messages.pop() if messages else await receive()

        return receive_again

    async def _collect(self, receive: Receive) -> bytes:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise RefusedError(400, "the client has gone")
            body += message.get("body", b"")
            if len(body) > self.limits.body_bytes:
                raise self._too_large()
            if not message.get("more_body"):
                return bytes(body)

    def _too_large(self) -> RefusedError:
        return RefusedError(413, f"the body is too large, expected at most {self.limits.body_bytes:,} bytes", _CLOSE)

    async def log_in(self, request: HTTPConnection, receive: Receive) -> Response:
        """Takes the token from the form of the page and starts a session: a cookie that only this page sends back."""
        self.check_origin(request)
        if request.scope["method"] != "POST":
            raise RefusedError(405, "expected POST with a token", {"Allow": "POST"})
        form = await (await self.read_body(request, receive))()
        if len(self._failures) == _FAILURES and time.monotonic() - self._failures[0] < _FAILURE_SECONDS:
            raise RefusedError(429, "too many wrong tokens, expected another attempt later", {"Retry-After": "1"})
        if self.access.token is None or not equal(token_of(form["body"]), self.access.token):
            self._failures.append(time.monotonic())
            raise RefusedError(401, "a wrong token, expected that of this service")
        response = RedirectResponse("./", 303, {"Cache-Control": "no-store"})
        is_https = request.scope.get("scheme") == "https"
        response.set_cookie(COOKIE, self.session, secure=is_https, httponly=True, samesite="strict")
        return response


def answer_to(refusal: RefusedError, request: HTTPConnection) -> Response:
    """The answer to a refused request; a browser without a token gets a form for it."""
    is_browser = request.scope["type"] == "http" and "text/html" in request.headers.get("accept", "")
    if refusal.status != 401 or not is_browser:
        return refusal.response()
    note = '<p class="error" role="alert">This token is wrong.</p>' if request.scope["path"] == LOGIN else ""
    return HTMLResponse(_FORM.format(note=note), 401, {"Cache-Control": "no-store"})


def session_of(token: str) -> str:
    """The cookie of a session: it follows from the token, but not the token from it."""
    return hmac.digest(token.encode(), b"antiphon session", "sha256").hex()


def equal(one: str, other: str) -> bool:
    """Whether two secrets are equal, in a time that does not depend on where they differ."""
    digests = (sha256(secret.encode("utf-8", "surrogateescape")).digest() for secret in (one, other))
    return hmac.compare_digest(*digests)


def token_of(form: bytes) -> str:
    """The field ``token`` of a form, or nothing."""
    try:
        return parse_qs(form.decode("latin-1"), max_num_fields=8, errors="replace").get("token", [""])[0]
    except ValueError:
        raise RefusedError(400, "too many fields, expected token alone") from None


def split(address: str) -> SplitResult:
    """The parts of an address; empty ones if it is none."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")
