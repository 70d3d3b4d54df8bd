"""Settings of the service: access, and limits of requests and streams."""

import re
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import urlsplit

from antiphon.exceptions import InputError

_ORIGIN = re.compile(r"https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[1-9][0-9]{0,4})?")
_DEFAULT_PORTS = {"http": 80, "https": 443}
LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of requests and streams; what exceeds them is refused in a sentence."""

    body_bytes: int = 1_000_000
    inputs: int = 256
    """Inputs, pairs or sentences of one request."""
    characters: int = 2000
    """Characters of one text."""
    cells: int = 300_000
    """Cells of a lattice that is shown."""
    candidates: int = 100
    """Beam size and number of candidates."""
    seconds: float = 30.0
    """Time of a request, and time for its body to arrive."""
    queue: int = 2048
    """Inputs that wait to be decoded."""
    streams: int = 256
    stream_tokens: int = 10_000
    """Tokens of one input of a stream."""
    idle_seconds: float = 300.0
    """A stream that sends nothing for this long is closed."""
    send_seconds: float = 10.0
    """A stream whose client does not take an event for this long is closed."""
    grace_seconds: float = 20.0
    """Time to finish what is running when the service stops."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """Who may send requests: without ``token`` everyone who can connect, so only a loopback address is allowed then."""

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    hosts: tuple[str, ...] = ()
    """Further names of this service in the header Host, such as that of a reverse proxy."""
    origins: tuple[str, ...] = ()
    """Origins of other web pages that may send requests."""

    def __post_init__(self) -> None:
        if self.token is None and not is_loopback(self.host):
            raise InputError(
                f"--host {self.host}: everyone who reaches this machine could use the runs, expected --token TOKEN or "
                "--token-file FILE with it"
            )
        for origin in self.origins:
            if not is_origin(origin):
                raise InputError(
                    f"--allow-origin {origin!r}: no browser sends this, expected scheme and host in lower case, with "
                    "a port only if it is not the default one, such as https://example.org"
                )

    @property
    def known_hosts(self) -> frozenset[str] | None:
        """The names that the header Host may have; None allows all, which a token makes safe."""
        if self.token is not None and not self.hosts:
            return None
        return LOOPBACK_NAMES | {self.host, *self.hosts}


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """All settings of the service."""

    access: Access = field(default_factory=Access)
    limits: Limits = field(default_factory=Limits)
    wait_seconds: float = 0.004
    """How long the first of several requests waits for others to be decoded with it."""
    access_log: bool = True
    """Whether every request is logged on standard output."""


def is_origin(text: str) -> bool:
    """Whether a browser may send this as an origin: in lower case, without a path, without the port of the scheme."""
    try:
        parts = urlsplit(text)
        return _ORIGIN.fullmatch(text) is not None and parts.port != _DEFAULT_PORTS[parts.scheme]
    except ValueError:  # no IPv6 address, or no port
        return False


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to the address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host in LOOPBACK_NAMES
