"""Programs that need no PyTorch: wrong arguments and other user errors are one sentence, and exit status 2."""

import sys
from argparse import ArgumentParser
from collections.abc import Callable
from typing import NoReturn

from antiphon.exceptions import AntiphonError, InputError
from antiphon.terminal import discard_output, in_whole_words, printable


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
