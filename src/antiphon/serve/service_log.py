"""The log of the service, which never holds it up: a line that nobody takes is dropped and counted.

Requests are logged on standard output, failures on standard error, both by the module ``logging``.
"""

import logging
import os
import select
import sys
from typing import TextIO

from prometheus_client import Counter

ACCESS = "antiphon.serve.access"
"""The logger of requests."""
_AT_ONCE = 4096
"""Bytes that a pipe takes as a whole once it is ready for writing (PIPE_BUF)."""


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
    _direct(logging.getLogger(ACCESS), logging.INFO, sys.stdout if access else None, dropped)
    for name in ("antiphon.serve", "uvicorn", "asyncio"):
        _direct(logging.getLogger(name), logging.ERROR, sys.stderr, dropped)


def _direct(logger: logging.Logger, level: int, stream: TextIO | None, dropped: Counter) -> None:
    """Directs a logger to a stream alone; None discards its lines."""
    logger.setLevel(level)
    logger.propagate = False
    logger.handlers = [logging.NullHandler() if stream is None else UnblockedHandler(stream.fileno(), dropped)]
