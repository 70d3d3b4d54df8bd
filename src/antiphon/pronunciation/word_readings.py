"""The readings of a word that need no model: from the lexicon, from a stem in the lexicon, or letter by letter."""

import re
from collections.abc import Mapping

from antiphon.pronunciation.endings import add_s, derive
from antiphon.pronunciation.heteronyms import order_readings
from antiphon.pronunciation.lexicon import Readings
from antiphon.pronunciation.spoken_forms import Piece
from antiphon.pronunciation.tokens import fold

Found = tuple[str, Readings]
"""Where readings come from, and the readings, the preferred one first."""
_SPELT = frozenset(["US", "IT", "ID", "PR", "AI", "TV", "PC", "CD", "PM", "AM", "ER", "ET", "IE"])
"""Capitals that are read letter by letter although lexica have the word."""
_LONGEST_SPELT = 5
"""Capitals that no lexicon has are read letter by letter up to this many."""
_NO_VOWEL = re.compile(r"[bcdfghjklmnpqrstvwxz]{1,8}")
_SPELT_PLURAL = re.compile(r"[A-Z]{2,}(?:'?s)")
_LETTER_A = ("EY1",)
"""The letter; as a word, a is AH0."""


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
            return word not in self._lexicon or text.rstrip("'s") in _SPELT
        if not text.isupper() or len(text) == 1:
            return False
        return text in _SPELT or (word not in self._lexicon and len(text) <= _LONGEST_SPELT)

    def spell(self, word: str) -> tuple[str, ...]:
        """The names of the letters of a word; an s after an apostrophe, or at the end of capitals, is an ending."""
        letters, apostrophe, ending = word.partition("'")
        names = [self._letter(letter) for letter in letters]
        phonemes = tuple(phoneme for name in names for phoneme in name)
        return add_s(phonemes) if apostrophe and ending == "s" else phonemes

    def _letter(self, letter: str) -> tuple[str, ...]:
        return _LETTER_A if letter == "a" else next(iter(self._lexicon.get(letter, ())), ())
