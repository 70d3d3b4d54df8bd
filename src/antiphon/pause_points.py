"""Points at which a long computation gives control back for a moment, such as to a service with other work waiting.

Loops that may take long call ``pause`` between their steps. The caller sets with ``pausing`` what ``pause`` calls; it
may raise, which ends the computation. Without ``pausing``, ``pause`` does nothing.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Pauses(threading.local):
    """The callback of each thread."""

    callback: Callable[[], None] | None = None


_PAUSES = _Pauses()


@contextmanager
def pausing(callback: Callable[[], None]) -> Iterator[None]:
    """Inside, ``pause`` calls ``callback`` in this thread; a ``pause`` within the callback does nothing."""
    before, _PAUSES.callback = _PAUSES.callback, callback
    try:
        yield
    finally:
        _PAUSES.callback = before


def pause() -> None:
    """Calls the callback that ``pausing`` has set in this thread, if any."""
    callback = _PAUSES.callback
    if callback is None:
        return
    _PAUSES.callback = None
    try:
        callback()
    finally:
        _PAUSES.callback = callback
