"""Errors of commands: each becomes one sentence and an exit status."""

import errno
import io
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import typer

from antiphon.exceptions import AntiphonError, interrupt_status, is_out_of_memory, lacks_memory
from antiphon.storage.files import final_location
from antiphon.terminal import in_whole_words, printable

UsageError: type[Exception] = typer.BadParameter.__bases__[0]
"""The exception of typer for wrong arguments; not every version has a public name for it."""

STANDARD_OUTPUT = "standard output"
_LONGEST_LINE, _MAX_LINES = 600, 50
"""Limits of a message, since wrong names and values can have any length."""
_EXPECTED = {
    errno.ENOENT: "expected an existing path",
    errno.ENOTDIR: "expected folders in front of the last name",
    errno.EISDIR: "expected a file",
    errno.EEXIST: "expected a new name",
    errno.ENAMETOOLONG: "expected a shorter name",
    errno.EACCES: "expected permission to use it",
    errno.EPERM: "expected permission to use it",
    errno.EROFS: "expected a place that can be written to",
    errno.ENOSPC: "expected free disk space; free some and start again",
    errno.EDQUOT: "expected free disk space; free some and start again",
    errno.EFBIG: "expected free disk space; free some and start again",
    errno.EMFILE: "expected fewer open files; raise the limit with ulimit -n",
    errno.ENOMEM: "expected more memory",
}


class Failure(NamedTuple):
    """The exit status of a failed command, and the sentence that says why."""

    status: int
    message: str = ""


def failure_of(error: BaseException) -> Failure | None:
    """The failure that an exception stands for; None for a bug, which keeps its traceback."""
    for kinds, explain in _EXPLANATIONS:
        if isinstance(error, kinds):
            return explain(error)
    return None


def secure_standard_streams() -> None:
    """Sets output to UTF-8, and gives closed streams a descriptor, so that no file is opened under their number."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:  # using closed input or output stays an error; notes to closed stderr vanish
            _occupy(number, os.O_RDONLY if name == "stdout" else os.O_WRONLY)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    if sys.__stdout__ in (sys.stdout, None) and isinstance(sys.stdout, io.TextIOWrapper):
        _rewrap("stdout", sys.stdout, NamedOutput, "utf-8")
    if sys.__stderr__ in (sys.stderr, None) and isinstance(sys.stderr, io.TextIOWrapper):
        _rewrap("stderr", sys.stderr, LenientOutput, sys.stderr.encoding)


def _rewrap(name: str, stream: io.TextIOWrapper, kind: type[io.TextIOWrapper], encoding: str) -> None:
    """Replaces a standard stream, also as the original one: libraries ask that one for the width of the terminal."""
    at_once, lines = stream.write_through, stream.line_buffering
    new = kind(
        stream.detach(), encoding=encoding, errors="backslashreplace", line_buffering=lines, write_through=at_once
    )
    setattr(sys, name, new)
    setattr(sys, f"__{name}__", new)


class LenientOutput(io.TextIOWrapper):
    """Standard error that ignores write errors: losing a note is not a reason to stop."""

    def write(self, text: str) -> int:
        """Writes text if possible."""
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        """Flushes the buffer if possible."""
        with suppress(OSError):
            super().flush()


class NamedOutput(io.TextIOWrapper):
    """Standard output whose errors name it as the file."""

    def write(self, text: str) -> int:
        """Writes text through the buffer."""
        with _named():
            return super().write(text)

    def flush(self) -> None:
        """Flushes the buffer."""
        with _named():
            super().flush()


@contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        error.filename = STANDARD_OUTPUT
        raise


def report(failure: Failure) -> int:
    """Prints the sentence on standard error, if there is one; returns the exit status."""
    if failure.message:
        with suppress(OSError, ValueError):
            shown = "\n".join(map(_shortened, printable(failure.message).split("\n")[:_MAX_LINES]))
            print(in_whole_words(f"antiphon: {shown}"), file=sys.stderr, flush=True)
    return failure.status


def _shortened(line: str) -> str:
    """The line, shortened in the middle: what was expected is at its end."""
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE // 2]} ... {line[-_LONGEST_LINE // 2 :]}"


def _occupy(number: int, flags: int) -> None:
    """Opens the null device under the descriptor of a closed stream."""
    opened = os.open(os.devnull, flags)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)


def _of_known_error(error: Any) -> Failure:
    return Failure(2, str(error))


_FILE_OF_TRAINING = re.compile(r"extra argument|option: --(train|dev|test|data|input|file)\b")
"""What is wrong where a file is given to ``train`` as it is not."""


def _of_usage(error: Any) -> Failure:
    message = error.format_message().strip().rstrip(".").replace(". Did you mean ", ", did you mean ")
    path = error.ctx.command_path if error.ctx is not None else "antiphon"
    hint = f"; {path} --help says what is expected"
    if path.endswith(" train") and _FILE_OF_TRAINING.search(message):
        hint = "; a file of pairs stands alone, as in antiphon train FILE, or after a recipe as --set data.train=FILE"
    return Failure(2, f"{message[0].lower()}{message[1:]}{'' if message.endswith('?') else hint}")


def _of_interrupt(interrupt: Any) -> Failure:
    return Failure(interrupt_status(interrupt))


def _of_operating_system(error: Any) -> Failure:
    """A closed pipe on standard output is not a failure; other errors are named with their file."""
    if error.filename == STANDARD_OUTPUT:
        _discard_output()
        if isinstance(error, BrokenPipeError):
            return Failure(0)
    files = [_shown(os.fsdecode(name)) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    return Failure(2, _sentence(" and ".join(files), error))


def _shown(name: str) -> str:
    """The name of a file, one that is not finished yet as it will be called."""
    place = final_location(Path(name))
    return name if place == Path(name).absolute() else str(place)


def _sentence(where: str, error: OSError) -> str:
    reason = (error.strerror or str(error) or type(error).__name__).strip()
    expected = _EXPECTED.get(error.errno or 0)
    return ", ".join(part for part in (f"{where}: {reason.lower()}" if where else reason, expected) if part)


def _discard_output() -> None:
    """Discards unwritten output, so that Python does not try to write it again at exit."""
    with suppress(OSError, ValueError):
        _occupy(sys.stdout.fileno(), os.O_WRONLY)
        sys.stdout.flush()


def _of_import(error: Any) -> Failure | None:
    """A library that cannot be mapped into memory; another import error is a bug."""
    return Failure(2, f"out of memory ({error}), expected more, or a higher ulimit -v") if lacks_memory(error) else None


def _of_memory(_: Any) -> Failure:
    return Failure(
        2, "out of memory, expected inputs or a model that fit; shorter lines, a smaller --beam or batch help"
    )


def _of_recursion(_: Any) -> Failure:
    return Failure(2, "a file is nested too deeply, expected tables and lists a few levels deep")


def _of_library(error: Any) -> Failure | None:
    return _of_memory(error) if is_out_of_memory(error) else None


_EXPLANATIONS: tuple[tuple[type[BaseException], Callable[[Any], Failure | None]], ...] = (
    (AntiphonError, _of_known_error),
    (UsageError, _of_usage),
    (typer.Abort, _of_interrupt),
    (KeyboardInterrupt, _of_interrupt),
    (OSError, _of_operating_system),
    (ImportError, _of_import),
    (MemoryError, _of_memory),
    (RecursionError, _of_recursion),
    (Exception, _of_library),
)
"""The first match counts: RecursionError is a RuntimeError too."""
