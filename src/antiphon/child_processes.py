"""Processes that end together: children with their parent, however it dies, and everything on SIGTERM.

Whoever starts a process keeps the writing end of a pipe and hands over the reading end. Nothing is ever written: the
pipe ends when its holder closes it or dies, even by ``kill -9``, and the child that waits on it then ends at once. This
needs nothing but pipes, so it works on every Unix; Linux's PR_SET_PDEATHSIG watches the *thread* that started a child
and would end it too early.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any, NoReturn

_VARIABLE = "ANTIPHON_LIFELINE"
"""Names the reading end to a child that is started as a command."""
_STATUS = 128 + signal.SIGKILL
"""Exit status of a child whose parent is gone."""


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived: all ends as on Ctrl-C, but for the exit status."""


def interrupt_status(interrupt: BaseException | None) -> int:
    """The exit status of a command that was stopped: 143 by SIGTERM, 130 by Ctrl-C."""
    return 143 if isinstance(interrupt, Terminated) else 130


def raise_on_sigterm() -> None:
    """Has SIGTERM raise ``Terminated`` in the main thread, unless whoever started this process ignores the signal."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _raise_terminated)


@contextmanager
def lifeline() -> Iterator[tuple[int, dict[str, str]]]:
    """A pipe for children that are started as commands: its reading end to pass on, and their environment.

    They end when the block is left, if they have not ended before.
    """
    reading, writing = os.pipe()
    try:
        yield reading, {**os.environ, _VARIABLE: str(reading)}
    finally:
        os.close(writing)
        os.close(reading)


def follow_parent() -> None:
    """Ends this process with the one that started it, if that has handed over a lifeline."""
    descriptor = os.environ.pop(_VARIABLE, "")
    if descriptor.isdecimal():
        _watch(int(descriptor))


def start_worker(held_by_parent: Connection, turn: Any, gpus: list[str]) -> None:
    """What a worker of a process pool does first, before it imports anything large.

    It ends with its parent, and sees one of the ``gpus``, if there are any: ``turn`` counts workers.
    """
    _watch(held_by_parent.fileno())
    _KEPT.append(held_by_parent)
    with turn.get_lock():
        worker, turn.value = turn.value, turn.value + 1
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[worker % len(gpus)]


_KEPT: list[Connection] = []
"""An end of a pipe is closed when nothing refers to it any more."""


def _watch(reading: int) -> None:
    threading.Thread(target=_wait_for_end, args=(reading,), daemon=True).start()


def _wait_for_end(reading: int) -> None:
    with suppress(OSError):  # no pipe: nothing to wait for
        os.read(reading, 1)
        os._exit(_STATUS)


def _raise_terminated(*_: Any) -> NoReturn:
    raise Terminated
