"""How training reports what it does, a line at a time."""

from collections.abc import Callable

Say = Callable[[str], None]
"""Shows a line of text."""


def silent(line: str) -> None:
    """Shows nothing."""
