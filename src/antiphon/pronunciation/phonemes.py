"""Phonemes of English in the two alphabets: ARPAbet with digits for stress, as in CMUdict, and IPA."""

from collections.abc import Sequence
from typing import Literal

from antiphon.exceptions import InputError

Alphabet = Literal["arpabet", "ipa"]
_CONSONANTS = dict(
    zip(
        "B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH".split(),
        "b tʃ d ð f ɡ h dʒ k l m n ŋ p ɹ s ʃ t θ v w j z ʒ".split(),
        strict=True,
    )
)
_VOWELS = dict(
    zip(
        "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW".split(),
        "ɑ æ ʌ ɔ aʊ aɪ ɛ ɝ eɪ ɪ i oʊ ɔɪ ʊ u".split(),
        strict=True,
    )
)
_UNSTRESSED = {"AH": "ə", "ER": "ɚ"}
_STRESS = {"0": "", "1": "ˈ", "2": "ˌ"}
SYMBOLS = (*_CONSONANTS, *(f"{vowel}{stress}" for vowel in _VOWELS for stress in _STRESS))
"""Every symbol of the shipped lexicon and models."""
_CLUSTERS = frozenset(
    (
        "P R,B R,T R,D R,K R,G R,F R,TH R,SH R,P L,B L,K L,G L,F L,S L,T W,D W,K W,G W,S W,S P,S T,S K,S M,S N,"
        "S P R,S T R,S K R,S P L,S K W,P Y,B Y,K Y,F Y,V Y,M Y,HH Y"
    ).split(",")
)
"""Consonants with which a stressed syllable can begin, besides single ones."""


def is_vowel(phoneme: str) -> bool:
    """Whether a phoneme is a vowel, with or without a digit for stress."""
    return phoneme.rstrip("012") in _VOWELS


def check_phonemes(phonemes: Sequence[str], where: str) -> None:
    """Refuses symbols that are not ARPAbet."""
    for phoneme in phonemes:
        if phoneme not in SYMBOLS and phoneme not in _VOWELS:
            raise InputError(f"{where}: {phoneme!r} is no phoneme of ARPAbet, expected symbols such as N AY1 T")


def write(phonemes: Sequence[str], alphabet: Alphabet = "arpabet") -> str:
    """Phonemes as text: symbols between spaces, or IPA with the mark before the stressed syllable."""
    return " ".join(phonemes) if alphabet == "arpabet" else "".join(ipa(phonemes))


def ipa(phonemes: Sequence[str], *, marks_vowels: bool = False) -> list[str]:
    """The IPA of each phoneme; the first of a stressed syllable has its mark, or with ``marks_vowels`` the vowel."""
    found = [_without_mark(phoneme) for phoneme in phonemes]
    for index, phoneme in enumerate(phonemes):
        if mark := stress_of(phoneme):
            start = index if marks_vowels else _onset(phonemes, index)
            found[start] = mark + found[start]
    return found


def stress_of(phoneme: str) -> str:
    """The mark of a phoneme's stress in IPA, if it has any."""
    return _STRESS.get(phoneme[-1:], "")


def _without_mark(phoneme: str) -> str:
    name = phoneme.rstrip("012")
    if phoneme.endswith("0") and name in _UNSTRESSED:
        return _UNSTRESSED[name]
    return _VOWELS.get(name) or _CONSONANTS.get(name) or phoneme


def _onset(phonemes: Sequence[str], vowel: int) -> int:
    """Where the syllable of a vowel begins: as many consonants before it as English allows, all at the beginning."""
    start = vowel
    while start and not is_vowel(phonemes[start - 1]):
        start -= 1
    if not start:
        return 0
    for first in range(start, vowel - 1):
        if " ".join(phonemes[first:vowel]) in _CLUSTERS:
            return first
    return vowel - 1 if start < vowel and phonemes[vowel - 1] != "NG" else vowel
