"""The stop list."""

from importlib.resources import files


def read_stop_words() -> frozenset[str]:
    """The stop list of the thesis (section 4.3, bag-of-words model), lower-cased as the text is."""
    return frozenset((files("antiphon.ranking") / "stop_words.txt").read_text(encoding="utf-8").split())
