"""A console for text from files, paths and recipes: it is printed literally, never as markup."""

import os
from typing import Any

from rich.console import Console
from rich.text import Text

from antiphon.terminal import printable

WIDTH_OF_FILES = 160
"""Width of text that does not go to a terminal."""


class PlainConsole(Console):
    """A console that does not interpret markup."""

    def __init__(self, *, stderr: bool = False, quiet: bool = False) -> None:
        super().__init__(stderr=stderr, quiet=quiet, markup=False, emoji=False, highlight=False)
        if not self.is_terminal and "COLUMNS" not in os.environ:
            self.width = WIDTH_OF_FILES

    def render_str(self, text: str, **options: Any) -> Text:
        """The text with its control characters escaped."""
        return super().render_str(printable(text), **options)

    def on_broken_pipe(self) -> None:
        """Lets the command handle a closed output pipe."""
        raise
