"""A backend with the interface of phonemizer, which is not needed, for programs that take one of its backends."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from antiphon.exceptions import InputError
from antiphon.pronunciation.phonemes import ipa
from antiphon.pronunciation.pronouncer import Spoken, pronounce


class Separator(NamedTuple):
    """What stands between phonemes and after words, as in phonemizer, whose own class works too."""

    phone: str = ""
    word: str = " "


class AntiphonBackend:
    """Phonemes of American English in IPA, with marks of stress before vowels as espeak writes them."""

    def __init__(
        self,
        language: str = "en-us",
        *,
        preserve_punctuation: bool = False,
        with_stress: bool = False,
        **others: Any,  # of other backends: punctuation marks, ties, loggers
    ) -> None:
        if language not in self.supported_languages():
            raise InputError(f"language {language!r}: not supported, expected en-us")
        self.language, self.keeps_punctuation, self.with_stress = language, preserve_punctuation, with_stress

    @staticmethod
    def name() -> str:
        """The name of the backend."""
        return "antiphon"

    @staticmethod
    def supported_languages() -> dict[str, str]:
        """The languages by their codes."""
        return {"en-us": "English (America)"}

    def phonemize(self, text: Sequence[str], separator: Any = None, strip: bool = False, njobs: int = 1) -> list[str]:
        """The phonemes of each text that has words; with ``strip``, no separator at the end. ``njobs`` is ignored."""
        if isinstance(text, str):
            raise InputError("text: a string, expected a list of strings")
        lines = [self._line(pronounce(each), separator or Separator()) for each in text if each.strip()]
        return [line.strip() if strip else line for line in lines]

    def _line(self, parts: Sequence[Spoken], separator: Any) -> str:
        """The phonemes of a text, each word with its separator, punctuation right after the word before."""
        line = ""
        for part in parts:
            for word in part.words:
                found = str(separator.phone).join(ipa(word.phonemes, marks_vowels=True))
                line += (found if self.with_stress else re.sub("[ˈˌ]", "", found)) + str(separator.word)
            if not part.words and self.keeps_punctuation:
                line = line.removesuffix(str(separator.word)) + part.text + str(separator.word)
        return line
