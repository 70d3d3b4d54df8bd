"""The readings of a word that need no model: from the lexicon, from a stem in the lexicon, or letter by letter.

Of several readings, ``heteronyms.tsv`` says which is the more frequent one, and which one a part of speech has. It also
has a few newer words that are written in capitals and yet not spelt.

A word that is not listed may have a stem that is: endings of inflection, and contractions cut or without apostrophe. On
held-out words whose stem is listed, these rules are right for 89 % with -s, 84 % with -ed and 89 % with -ing; the model
is for 67, 73 and 79 %. The same for compounds of two listed words was worse than the model, so it is not here.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from antiphon.pronunciation import FOLDER
from antiphon.pronunciation.lexicon import Readings
from antiphon.pronunciation.spoken_forms import Piece
from antiphon.pronunciation.tokens import fold

Found = tuple[str, Readings]
"""Where readings come from, and the readings, the preferred one first."""
_SPELT = frozenset("US IT ID PR AI TV PC CD PM AM ER ET IE UN LA EST".split())
"""Capitals that are read letter by letter although lexica have the word."""
_LONGEST_SPELT = 5
"""Capitals that no lexicon has are read letter by letter up to this many."""
_NO_VOWEL = re.compile(r"[bcdfghjklmnpqrstvwxz]{1,8}")
_SPELT_PLURAL = re.compile(r"[A-Z]{2,}(?:'?s)")
_LETTER_A = ("EY1",)
"""The letter; as a word, a is AH0."""
_PENN = {"VBD": "PAST", "VBN": "PAST", "NNP": "PROPN", "NNPS": "PROPN", "NN": "NOUN", "NNS": "NOUN", "IN": "ADP"}
_PENN_GROUPS = {"VB": "VERB", "MD": "VERB", "JJ": "ADJ", "RB": "ADV"}
_INSTEAD = {"PAST": "VERB", "AUX": "VERB", "ADV": "ADJ", "PROPN": "NOUN"}
"""Where a word has no reading of its own for a part of speech, that of another one is taken."""
Phonemes = tuple[str, ...]
_VOICELESS, _HISSING = {"P", "T", "K", "F", "TH"}, {"S", "Z", "SH", "ZH", "CH", "JH"}
_ADDED: Mapping[str, Phonemes] = {"ing": ("IH0", "NG"), "ness": ("N", "AH0", "S"), "less": ("L", "AH0", "S")}
"""Endings that are always said in the same way."""
_SHORTEST = 3
"""Letters of a stem, unless an apostrophe follows."""
_STRETCHED = re.compile(r"(?<=.)(.)\1{2,}")
"""A letter three times or more, but not at the beginning: sooo, hellooo."""


class WordReadings:
    """The readings of words in a lexicon, and of words that it gives by rule."""

    def __init__(self, lexicon: Mapping[str, Readings]) -> None:
        self._lexicon = lexicon

    def find(self, piece: Piece, *, in_capitals: bool = False) -> Found | None:
        """The readings of a piece; None where a model has to be asked.

        ``in_capitals``: all of the text is in capitals, which then say nothing about a word.
        """
        if piece.phonemes is not None:
            return "given", (piece.phonemes,)
        word = fold(piece.text)
        if piece.is_spelt or (not in_capitals and self._is_acronym(piece.text, word)):
            return "spelt", (self.spell(re.sub(r"(?<=[A-Z])'?s$", "'s", piece.text).lower()),)
        if listed := self._listed(word, piece):
            return "lexicon", listed
        if derived := derive(word, self._lexicon):
            return "derived", derived
        return ("spelt", (self.spell(word),)) if _NO_VOWEL.fullmatch(word) else None

    def _listed(self, word: str, piece: Piece) -> Readings:
        """The readings in the lexicon; a capital makes Polish of polish only where no part of speech is given."""
        return order_readings(word, self._lexicon.get(word, ()), piece.tag)

    def _is_acronym(self, text: str, word: str) -> bool:
        """Whether capitals are read letter by letter."""
        if _SPELT_PLURAL.fullmatch(text):
            return not self._has(word) or text.rstrip("'s") in _SPELT
        if not text.isupper() or len(text) == 1 or not word.isascii():
            return False
        return text in _SPELT or (not self._has(word) and len(text) <= _LONGEST_SPELT)

    def _has(self, word: str) -> bool:
        return word in self._lexicon or word in _table()

    def spell(self, word: str) -> tuple[str, ...]:
        """The names of the letters of a word; an s after an apostrophe, or at the end of capitals, is an ending."""
        letters, apostrophe, ending = word.partition("'")
        names = [self._letter(letter) for letter in letters]
        phonemes = tuple(phoneme for name in names for phoneme in name)
        return add_s(phonemes) if apostrophe and ending == "s" else phonemes

    def _letter(self, letter: str) -> tuple[str, ...]:
        return _LETTER_A if letter == "a" else next(iter(self._lexicon.get(letter, ())), ())


@cache
def _table() -> dict[str, list[tuple[str, tuple[str, ...]]]]:
    """The tags and readings of each word, the more frequent one first."""
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


def derive(word: str, lexicon: Mapping[str, Readings]) -> Readings:
    """The readings of a word that follow from those of another one in the lexicon; none if no rule applies."""
    stem, apostrophe, rest = word.partition("'")
    if apostrophe:
        return _with_apostrophe(stem, rest, lexicon)
    if cut := lexicon.get(f"{word}'t"):
        return tuple(reading[:-1] for reading in cut)
    if len(word) >= _SHORTEST and (whole := lexicon.get(f"{word[:-1]}'{word[-1:]}")):
        return whole
    if _STRETCHED.search(word):
        return next(filter(None, (lexicon.get(_STRETCHED.sub(r"\1" * count, word), ()) for count in (1, 2))), ())
    for ending in ("s", "ed", *_ADDED):
        for stem in _stems(word, ending):
            if listed := lexicon.get(stem):
                return tuple(add(ending, reading) for reading in listed)
    return ()


def _with_apostrophe(stem: str, rest: str, lexicon: Mapping[str, Readings]) -> Readings:
    """``knight's``, ``knights'`` and ``goin'``."""
    listed = lexicon.get(stem) or (derive(stem, lexicon) if stem else ())
    if rest == "s":
        return tuple(map(add_s, listed))
    if not rest and stem.endswith("s"):
        return listed
    if not rest and stem.endswith("in"):
        return tuple((*reading[:-1], "N") for reading in lexicon.get(f"{stem}g", ()))
    return ()


def _stems(word: str, ending: str) -> Iterator[str]:
    """What a word can be without an ending: ``stopp`` and ``stop``, ``hop`` and ``hope``, ``happi`` and ``happy``."""
    stem = word.removesuffix(ending)
    if stem == word or len(stem) < _SHORTEST or (ending == "s" and stem.endswith("s")):
        return
    yield stem
    if ending in ("ed", "ing"):
        yield f"{stem}e"
        if stem[-1] == stem[-2]:
            yield stem[:-1]
    if ending in ("ed", "ness") and stem.endswith("i"):
        yield f"{stem[:-1]}y"


def add(ending: str, phonemes: Phonemes) -> Phonemes:
    """Phonemes with an ending."""
    if ending == "s":
        return add_s(phonemes)
    return add_ed(phonemes) if ending == "ed" else (*phonemes, *_ADDED[ending])


def add_s(phonemes: Phonemes) -> Phonemes:
    """Phonemes with the ending of a plural or a genitive."""
    last = phonemes[-1] if phonemes else ""
    if last in _HISSING:
        return (*phonemes, "IH0", "Z")
    return (*phonemes, "S" if last in _VOICELESS else "Z")


def add_ed(phonemes: Phonemes) -> Phonemes:
    """Phonemes with the ending of the past."""
    last = phonemes[-1] if phonemes else ""
    if last in ("T", "D"):
        return (*phonemes, "IH0", "D")
    return (*phonemes, "T" if last in _VOICELESS | {"S", "SH", "CH"} else "D")
