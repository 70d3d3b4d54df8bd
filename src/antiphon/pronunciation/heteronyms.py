"""Words with several readings: which one is the more frequent, and which one a part of speech has."""

from collections.abc import Sequence
from functools import cache

from antiphon.pronunciation.lexicon import Readings

_PENN = {"VBD": "PAST", "VBN": "PAST", "NNP": "PROPN", "NNPS": "PROPN", "NN": "NOUN", "NNS": "NOUN", "IN": "ADP"}
_PENN_GROUPS = {"VB": "VERB", "MD": "VERB", "JJ": "ADJ", "RB": "ADV"}
_INSTEAD = {"PAST": "VERB", "AUX": "VERB", "ADV": "ADJ", "PROPN": "NOUN"}
"""Where a word has no reading of its own for a part of speech, that of another one is taken."""


@cache
def _table() -> dict[str, list[tuple[str, tuple[str, ...]]]]:
    """The tags and readings of each word, the more frequent one first."""
    from antiphon.pronunciation import FOLDER

    table: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for line in (FOLDER / "heteronyms.tsv").read_text(encoding="utf-8").splitlines():
        word, tag, phonemes = line.split("\t")
        table.setdefault(word, []).append((tag, tuple(phonemes.split())))
    return table


def order_readings(word: str, listed: Readings, tag: str = "") -> Readings:
    """The readings of a word, the one for a part of speech first, else the more frequent one."""
    rows = _table().get(word)
    if rows is None:
        return listed
    wanted = _reading_for(universal(tag), rows) if tag else None
    ordered = [*([wanted] if wanted else []), *(reading for _, reading in rows), *listed]
    return tuple(dict.fromkeys(ordered))


def universal(tag: str) -> str:
    """A tag of the Penn Treebank or of Universal Dependencies as the table has it."""
    tag = tag.upper()
    return _PENN.get(tag) or _PENN_GROUPS.get(tag[:2], tag)


def _reading_for(tag: str, rows: Sequence[tuple[str, tuple[str, ...]]]) -> tuple[str, ...] | None:
    """The reading of a part of speech, or of one that is taken instead."""
    by_tag = dict(reversed(rows))
    while tag not in by_tag and tag in _INSTEAD:
        tag = _INSTEAD[tag]
    return by_tag.get(tag)
