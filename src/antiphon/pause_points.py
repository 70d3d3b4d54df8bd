"""Points at which a long computation gives control back for a moment, such as to a service with other work waiting.

Loops that may take long call ``pause`` between their steps. Whoever runs them chooses with ``pausing`` what is called
there; it may raise, which ends the computation. Without it, ``pause`` does nothing.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Pauses(threading.local):
    """What is called at the pauses of a thread."""

    callback: Callable[[], None] | None = None


_PAUSES = _Pauses()


@contextmanager
def pausing(callback: Callable[[], None]) -> Iterator[None]:
    """Has the pauses of this thread call something; while that runs, there are no other pauses."""
    before, _PAUSES.callback = _PAUSES.callback, callback
    try:
        yield
    finally:
        _PAUSES.callback = before


def pause() -> None:
    """Calls what was chosen for the pauses of this thread, if anything."""
    callback = _PAUSES.callback
    if callback is None:
        return
    _PAUSES.callback = None
    try:
        callback()
    finally:
        _PAUSES.callback = callback
