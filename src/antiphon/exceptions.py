"""Errors that a user can fix, and SIGTERM and Ctrl-C as exceptions.

    AntiphonError
    ├── InputError      a file or line is not what it should be
    ├── RecipeError     a recipe has unknown keys or impossible values
    ├── RunError        a run folder is missing, damaged, of the wrong kind, or in the way
    └── InstallError    a package is not installed

Each message is one sentence: where, what was found, what was expected. The command line prints it and exits with status
2. Signals raise exceptions in the main thread, but not while a module is imported.
"""

import errno
import signal
import sys
import threading
from functools import partial
from importlib.util import find_spec
from types import FrameType

_OUT_OF_MEMORY = (
    "DefaultCPUAllocator: can't allocate memory",
    "std::bad_alloc",
    "could not create a primitive",
)
"""What PyTorch and oneDNN say when the system refuses memory."""
_IMPORT_PAUSE = 0.05
"""Seconds after which a signal that came during an import is tried again."""


class AntiphonError(Exception):
    """Base class of errors that a user can fix."""


class InputError(AntiphonError):
    """A file or line is not what it should be."""


class RecipeError(AntiphonError):
    """A recipe has unknown keys or impossible values."""


class RunError(AntiphonError):
    """A run folder is missing, damaged, of the wrong kind, or in the way."""


class InstallError(AntiphonError):
    """A package is not installed."""


def check_installed(package: str, extra: str, purpose: str) -> None:
    """Raises ``InstallError`` if a package is missing, with the extra that installs it; the package is not imported."""
    if find_spec(package) is None:
        raise InstallError(f"{purpose} needs {package}, expected it installed: {how_to_install(extra)}")


def how_to_install(extra: str) -> str:
    """The command that installs an extra; the package is not on PyPI yet."""
    return f"pip install -e '.[{extra}]' in a checkout of Antiphon"


def lacks_memory(error: ImportError) -> bool:
    """Whether a library could not be mapped into memory."""
    return any(text in str(error).lower() for text in ("failed to map segment", "cannot allocate memory"))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a library, which may not be there, ran out of memory: on a GPU, or on a CPU whose system refuses."""
    return type(error).__name__ == "OutOfMemoryError" or any(text in str(error) for text in _OUT_OF_MEMORY)


def is_disk_full(error: OSError) -> bool:
    """Whether the disk is full."""
    return error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


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
