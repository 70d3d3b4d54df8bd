"""Checks of every request before anything reads it: host, token, origin, size; and headers of every answer."""

import asyncio
import hmac
import json
import time
from collections import deque
from collections.abc import Iterable, MutableMapping
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from antiphon.exceptions import AntiphonError
from antiphon.serve.service_settings import Access, Limits

COOKIE = "antiphon_session"
LOGIN = "/login"
_OPEN = frozenset({"/health", "/ready", "/style.css", "/icon.svg", "/login.js"})
"""What is served without a token: what probes ask for, and the files of the login form."""
_FAILURES, _FAILURE_SECONDS = 5, 1.0
"""Wrong tokens that the login form takes in this many seconds, of all clients together."""
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]
_FORM = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Antiphon: token</title><link rel="icon" href="icon.svg"><link rel="stylesheet" href="style.css">
<script type="module" src="login.js"></script></head>
<body class="login"><main><h1><img src="icon.svg" alt="" width="22" height="22"> antiphon</h1>
<form method="post" action="{action}"><label for="token">Token of this service</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button>Enter</button></form>{note}</main></body></html>
"""


class RefusedError(Exception):
    """A request that is not answered: its status, a sentence, and further headers."""

    def __init__(self, status: int, message: str, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, tuple(headers)

    @classmethod
    def of(cls, error: AntiphonError) -> "RefusedError":
        """The refusal of a request that the library refuses, with its sentence."""
        return cls(400, str(error))


class SecurityHeaders:
    """Adds the headers that keep a browser from loading or leaking anything."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes everything on."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                message["headers"] = [*message.get("headers", ()), *SECURITY_HEADERS]
            await send(message)

        await self.app(scope, receive, send_with_headers)


class Guard:
    """Refuses requests of wrong hosts, without the token, of other origins, or that are too large or too slow."""

    def __init__(self, app: ASGIApp, access: Access, limits: Limits) -> None:
        self.app, self.access, self.limits = app, access, limits
        self.session = session_of(access.token) if access.token is not None else ""
        self._failures = deque[float](maxlen=_FAILURES)
        """When the login form got the last wrong tokens."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes on what is not refused."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            self.check_host(headers)
            if scope["path"] == LOGIN and scope["type"] == "http":
                await self.log_in(scope, receive, send)
                return
            self.check_token(scope, headers)
            self.check_origin(scope, headers)
            received = await self.read_body(scope, headers, receive)
        except RefusedError as refusal:
            await refuse(scope, send, refusal, form=wants_page(scope, headers))
            return
        if scope.get("method") == "HEAD":  # answered like GET; the server leaves the body out
            scope = {**scope, "method": "GET"}
        await self.app(scope, received, send)

    def check_host(self, headers: Headers) -> None:
        """Refuses a host name that is not served: another site may have pointed its name to this machine."""
        known = self.access.known_hosts
        if known is not None and host_name(headers.get("host", "")) not in known:
            raise RefusedError(
                403, "the header Host names a host that is not served here, expected one of --allow-host"
            )

    def check_token(self, scope: Scope, headers: Headers) -> None:
        """Refuses a request without the token, in the header Authorization or as the cookie of a session."""
        token = self.access.token
        if token is None or scope["path"] in _OPEN:
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        given = given.strip().encode("latin-1").decode("utf-8", "surrogateescape")
        as_header = scheme.lower() == "bearer" and equal(given, token)
        as_cookie = equal(cookie_of(headers), self.session)
        if not (as_header or as_cookie):
            challenge = [(b"www-authenticate", b'Bearer realm="antiphon"')]
            raise RefusedError(
                401, "no token or a wrong one, expected the header Authorization: Bearer TOKEN", challenge
            )

    def check_origin(self, scope: Scope, headers: Headers) -> None:
        """Refuses sockets and changes that a page of another origin asks for; programs send no origin."""
        origin = headers.get("origin")
        is_read = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if origin is None or is_read or origin in self.access.origins:
            return
        if not origin or network_location(origin) != headers.get("host", "").lower():
            raise RefusedError(403, "the request comes from a page of another origin, expected one of --allow-origin")

    async def read_body(self, scope: Scope, headers: Headers, receive: Receive) -> Receive:
        """A ``receive`` that replays the body, once all of it has arrived in time and within its limit."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return receive
        declared = headers.get("content-length", "0")
        if not declared.isdecimal() or int(declared) > self.limits.body_bytes:
            raise self._too_large()
        try:
            async with asyncio.timeout(self.limits.seconds):
                body = await self._collect(receive)
        except TimeoutError:
            raise RefusedError(408, f"the body did not arrive within {self.limits.seconds:g} seconds", _CLOSE) from None
        return replay(body, receive)

    async def _collect(self, receive: Receive) -> bytes:
        parts, size = list[bytes](), 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise RefusedError(400, "the client has gone")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.limits.body_bytes:
                raise self._too_large()
            if not message.get("more_body"):
                return b"".join(parts)

    def _too_large(self) -> RefusedError:
        return RefusedError(413, f"the body is too large, expected at most {self.limits.body_bytes:,} bytes", _CLOSE)

    async def log_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Takes the token from the form of the page and starts a session: a cookie that only this page sends back."""
        headers = Headers(scope=scope)
        self.check_origin(scope, headers)
        if scope["method"] != "POST":
            raise RefusedError(405, "expected POST with a token", [(b"allow", b"POST")])
        body = await (await self.read_body(scope, headers, receive))()
        if len(self._failures) == _FAILURES and time.monotonic() - self._failures[0] < _FAILURE_SECONDS:
            raise RefusedError(429, "too many wrong tokens, expected another attempt later", [(b"retry-after", b"1")])
        if self.access.token is None or not equal(token_of(body["body"]), self.access.token):
            self._failures.append(time.monotonic())
            raise RefusedError(401, "a wrong token, expected that of this service")
        flags = "Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if scope.get("scheme") == "https" else "")
        cookie = f"{COOKIE}={self.session}; {flags}".encode()
        await answer(scope, send, 303, b"", [(b"location", b"./"), (b"set-cookie", cookie)])


_CLOSE = [(b"connection", b"close")]


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


def cookie_of(headers: Headers) -> str:
    """The session cookie, or nothing."""
    try:
        cookies = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return ""
    return cookies[COOKIE].value if COOKIE in cookies else ""


def network_location(origin: str) -> str:
    """Host and port of an origin, or nothing if it is none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def host_name(host: str) -> str:
    """The name in a header Host, without port and brackets."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def wants_page(scope: Scope, headers: Headers) -> bool:
    """Whether a browser asks for a page to show."""
    return scope["type"] == "http" and "text/html" in headers.get("accept", "")


def replay(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that first returns a body that was read already, and then what ``receive`` returns."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    return receive_again


async def refuse(scope: Scope, send: Send, refusal: RefusedError, *, form: bool = False) -> None:
    """Answers with the sentence of a refusal; a browser without a token gets a form for it."""
    if form and refusal.status == 401:
        note = '<p class="error" role="alert">This token is wrong.</p>' if scope["path"] == LOGIN else ""
        page = _FORM.format(action=LOGIN.lstrip("/"), note=note).encode()
        await answer(scope, send, 401, page, [(b"content-type", b"text/html; charset=utf-8")])
        return
    body = json.dumps({"error": refusal.message}).encode()
    await answer(scope, send, refusal.status, body, [(b"content-type", b"application/json"), *refusal.headers])


async def answer(
    scope: MutableMapping[str, Any], send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]
) -> None:
    """Sends a whole answer, also to a client that asked for a socket."""
    kind = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    headers = [*headers, (b"content-length", str(len(body)).encode()), (b"cache-control", b"no-store")]
    await send({"type": f"{kind}.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.body", "body": body})
