"""A ``fallback`` for ``misaki.en.G2P``: words that misaki's dictionaries lack, without espeak-ng."""

from typing import Any

from antiphon.pronunciation.phonemes import ipa, stress_of
from antiphon.pronunciation.pronouncer import Word, pronounce

_LETTERS = {"AW": "W", "AY": "I", "EY": "A", "OW": "O", "OY": "Y", "CH": "ʧ", "JH": "ʤ", "ER": "ɜɹ"}
"""What misaki writes in its own way."""
_RATINGS = {"lexicon": 3, "given": 3, "derived": 3}
"""How far misaki may trust an origin; its own fallback has 2."""


def misaki_fallback(token: Any) -> tuple[str | None, int | None]:
    """The phonemes of the text of a token in misaki's letters for American English, and their rating."""
    words = [word for part in pronounce(token.text) for word in part.words if word.readings]
    if not words:
        return None, None
    return " ".join(map(_letters, words)), min(_RATINGS.get(word.origin, 2) for word in words)


def _letters(word: Word) -> str:
    return "".join(map(_letter, word.phonemes))


def _letter(phoneme: str) -> str:
    """The letters of a phoneme, with the mark of stress before a vowel."""
    name = phoneme.rstrip("012")
    if phoneme == "ER0":
        return "əɹ"
    plain = ipa([phoneme])[0].strip("ˈˌ")
    return stress_of(phoneme) + _LETTERS.get(name, plain)
