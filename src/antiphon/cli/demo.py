"""``antiphon demo``."""


def command() -> None:
    """Demo."""
