"""Ends child processes with their parent, however it dies, and handles SIGTERM.

A parent keeps the writing end of a pipe and passes the reading end to its children. Nothing is ever written: the pipe
is closed when the parent closes it or dies, even by ``kill -9``, and a child that waits on it then exits: a worker of a
pool at once, a command as on SIGTERM, so that it deletes its temporary files. This needs only pipes, so it works on
every Unix; Linux's PR_SET_PDEATHSIG watches the *thread* that started a child and would end it too early.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any, NoReturn

_VARIABLE = "ANTIPHON_PARENT_PIPE"
"""Environment variable with the descriptor of the reading end, for children started as commands."""
_ORPHAN_STATUS = 128 + signal.SIGKILL
"""Exit status of a child whose parent is gone."""
_IMPORT_PAUSE = 0.05
"""Seconds after which a signal that came during an import is tried again."""
GRACE_SECONDS = 20
"""Seconds that a command has to clean up after its parent is gone."""


class Terminated(KeyboardInterrupt):
    """Raised on SIGTERM: handled like Ctrl-C except for the exit status."""


def interrupt_status(interrupt: BaseException | None) -> int:
    """The exit status of a command that was stopped: 143 by SIGTERM, 130 by Ctrl-C."""
    return 143 if isinstance(interrupt, Terminated) else 130


def end_silently_on_ctrl_c() -> None:
    """Makes Ctrl-C end the process without a traceback, until ``raise_on_signals``; if it is ignored, it stays so."""
    if _in_main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_on_signals() -> None:
    """Makes SIGTERM raise ``Terminated``, and Ctrl-C ``KeyboardInterrupt``, in the main thread, unless it is ignored.

    While a module is imported they wait: PyTorch and others import modules in places where any exception is swallowed
    or aborts the process.
    """
    if not _in_main_thread():
        return
    caller = sys._getframe(1)  # imports that this call is itself part of do not count
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, partial(_raise_after_imports, caller))


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _raise_after_imports(caller: FrameType, number: int, frame: FrameType | None) -> None:
    """Raises the exception of a signal, or if a module is being imported, tries again soon."""
    if _is_importing(frame, caller):
        signal.signal(signal.SIGALRM, lambda _, later: _raise_after_imports(caller, number, later))
        signal.setitimer(signal.ITIMER_REAL, _IMPORT_PAUSE)
        return
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


def _is_importing(frame: FrameType | None, caller: FrameType) -> bool:
    """Whether a module is being imported, below the frame of the caller."""
    while frame is not None and frame is not caller:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


@contextmanager
def parent_pipe() -> Iterator[tuple[int, dict[str, str]]]:
    """A pipe for children that are started as commands: the reading end to pass on, and their environment.

    Children that still run exit when the block is left.
    """
    reading, writing = os.pipe()
    try:
        yield reading, {**os.environ, _VARIABLE: str(reading)}
    finally:
        os.close(writing)
        os.close(reading)


def follow_parent() -> None:
    """Ends this command as SIGTERM does when its parent ends, if the parent has passed a pipe."""
    descriptor = os.environ.pop(_VARIABLE, "")
    if descriptor.isdecimal():
        _watch(int(descriptor), _terminate)


def start_worker(reading: Connection, started: Any, gpus: list[str]) -> None:
    """Initialises a worker of a process pool, before it imports anything large.

    It ends when its parent closes the other end of the pipe, or dies. Workers use the ``gpus`` in turn, if there are
    any: ``started`` is their shared counter.
    """
    _watch(reading.fileno(), _exit)
    _KEPT.append(reading)
    with started.get_lock():
        worker, started.value = started.value, started.value + 1
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[worker % len(gpus)]


_KEPT: list[Connection] = []
"""Keeps connections alive: a pipe is closed when nothing refers to it."""


def _watch(reading: int, end: Callable[[], None]) -> None:
    threading.Thread(target=_wait_for_end, args=(reading, end), daemon=True).start()


def _wait_for_end(reading: int, end: Callable[[], None]) -> None:
    with suppress(OSError):  # no pipe: nothing to wait for
        os.read(reading, 1)
        end()


def _terminate() -> None:
    """Sends SIGTERM to this process, and ends it if it still runs after ``GRACE_SECONDS``."""
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    _exit()


def _exit() -> NoReturn:
    os._exit(_ORPHAN_STATUS)
