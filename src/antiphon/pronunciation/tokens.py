"""A line of text as tokens with their positions."""

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from antiphon.pronunciation.spoken_forms import SIGNS, Piece, find_rule

_LETTER = r"[^\W\d_\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u209f\u2150-\u218f\u2460-\u24ff][\u0300-\u036f]*"
"""A letter with its marks; digits above and below the line, fractions and numbers in circles are none."""
_WORD = re.compile(rf"['’](?=(?:tis|twas|em|cause|til|bout|round)(?!\w))|{_LETTER}")
_REST_OF_WORD = re.compile(rf"(?:{_LETTER}|['’ʼ](?={_LETTER}))*")
_FINAL_APOSTROPHE = re.compile(r"(?<=[sS])['’](?!\w)")
_NAME = re.compile(r"(?:Mc|Mac|De|La|Le|Di|Van)[A-Z][a-z]+(?:'s)?")
"""Names with a capital inside, which are one word."""
_IS_CAMEL_CASE = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]{2}")
_CASE = re.compile(r"[A-Z]+(?=[A-Z][a-z]{2})|[A-Z]+(?:'?s)?(?![a-z])'?|[A-Z]?[a-z]+(?:'[a-z]+)?'?|.")
"""A part of a word in camel case."""
_SPACE_OR_CONTROL = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff\u200b-\u200f\u202a-\u202e\ufe00-\ufe0f\ufeff]+")


class Token(NamedTuple):
    """A part of a line from ``start`` to ``end``, and what is said for it; nothing for punctuation."""

    text: str
    start: int
    end: int
    pieces: tuple[Piece, ...]


def tokens(line: str) -> Iterator[Token]:
    """The tokens of a line; spaces and control characters are in none."""
    position = 0
    while position < len(line):
        if space := _SPACE_OR_CONTROL.match(line, position):
            position = space.end()
            continue
        end, pieces = _token_at(line, position)
        yield Token(line[position:end], position, end, pieces)
        position = end


def _token_at(line: str, start: int) -> tuple[int, tuple[Piece, ...]]:
    """Where the token at a position ends, and what is said for it."""
    if found := find_rule(line, start):
        match, said = found
        return match.end(), tuple(each if isinstance(each, Piece) else Piece(each) for each in said)
    if word := _WORD.match(line, start):
        return _word_at(line, start, word.end())
    sign = line[start]
    return start + 1, tuple(map(Piece, SIGNS.get(sign, "").split()))


def _word_at(line: str, start: int, end: int) -> tuple[int, tuple[Piece, ...]]:
    """The word that begins at a position; it may have apostrophes inside and, after an s, at its end."""
    rest = _REST_OF_WORD.match(line, end)
    assert rest is not None
    end = rest.end()
    if final := _FINAL_APOSTROPHE.match(line, end):
        end = final.end()
    return end, tuple(map(Piece, split_case(line[start:end])))


def split_case(word: str) -> list[str]:
    """The parts of a word in camel case, such as get, HTTP and Response; other words are one part."""
    if not word.isascii() or not _IS_CAMEL_CASE.search(word) or _NAME.fullmatch(word):
        return [word]
    return _CASE.findall(word)


def fold(word: str) -> str:
    """A word as lexica and models have it: lower case, letters without marks, straight apostrophes."""
    word = word.lower().replace("’", "'").replace("ʼ", "'").translate(_LETTERS)
    if word.isascii():
        return word
    decomposed = unicodedata.normalize("NFKD", word)
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))


_LETTERS = str.maketrans(
    {"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "th", "þ": "th", "ı": "i"}
)
"""Letters that Unicode does not take apart."""
