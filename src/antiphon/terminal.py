"""Programs in a terminal: text from files, paths and recipes is printed literally, and errors are one sentence."""

import os
import re
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from textwrap import fill
from typing import NoReturn

from antiphon.exceptions import AntiphonError, InputError

Say = Callable[[str], None]
"""Shows a line of text to the user, such as the progress of a training."""
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters except tab and newline, marks that change the direction of text, and lone surrogates."""
_LINE_CONTROLS = re.compile(f"{_CONTROLS.pattern[:-1]}\t\n]")


def printable(text: str) -> str:
    """The text with control characters as escapes such as ``\\x1b``; tabs and line ends stay."""
    return _CONTROLS.sub(_escape, text)


def one_line(text: str, limit: int = 200) -> str:
    """The text on one line, control characters as escapes, truncated to ``limit`` characters."""
    return _LINE_CONTROLS.sub(_escape, text if len(text) <= limit else f"{text[:limit]}...")


def silent(line: str) -> None:
    """Shows nothing."""


def print_note(message: str) -> None:
    """Prints a note of a command on standard error."""
    print(in_whole_words(printable(f"antiphon: {message}")), file=sys.stderr)


def discard_output() -> None:
    """Discards unwritten output, so that Python does not try to write it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def in_whole_words(text: str) -> str:
    """The text for standard error: on a terminal, lines break between words, which it would not do by itself."""
    if not sys.stderr.isatty():
        return text
    width = os.get_terminal_size(sys.stderr.fileno()).columns or sys.maxsize
    return "\n".join(fill(line, width, break_long_words=False, break_on_hyphens=False) for line in text.split("\n"))


def count_of(count: int, noun: str) -> str:
    """``1 line``, ``2 lines``: a count with its noun, for messages."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def duration(seconds: float) -> str:
    """Minutes and seconds, with hours if there are any: ``1:05``, ``2:00:00``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


class OneSentenceParser(ArgumentParser):
    """A parser that answers wrong arguments with one sentence."""

    def error(self, message: str) -> NoReturn:
        """Ends the program with the sentence and status 2."""
        name = self.prog.removeprefix("python -m ").split()[0]
        self.exit(2, printable(f"{name}: {message}; {self.prog} --help says what is expected") + "\n")


def exit_status(name: str, run: Callable[[], None]) -> int:
    """The exit status of a program that prints on standard output; an error of the user is one sentence after a name.

    A reader that stops reading is no error.
    """
    sentence = ""
    try:
        if sys.stdout is None:
            raise InputError("standard output: closed, expected to write there")
        run()
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except AntiphonError as error:
        sentence = str(error)
    except MemoryError:
        sentence = "out of memory, expected more, shorter lines or a smaller --beam"
    except OSError as error:
        discard_output()
        if not isinstance(error, BrokenPipeError):
            sentence = f"{error.filename or 'standard output'}: {str(error.strerror).lower()}, expected to write there"
    if sentence:
        print(in_whole_words(printable(f"{name}: {sentence}")), file=sys.stderr)
    return 2 if sentence else 0
