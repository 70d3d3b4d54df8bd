"""Data sets made by script: what a user would expect any transducer to learn from a few hundred pairs.

| set | pairs | asks for |
|---|---|---|
| ``number-words`` | ``seven hundred seventy seven`` to ``777``, letters to letters | repeated symbols |
| ``words-of-numbers`` | the other way round | outputs longer than inputs |
| ``phone-numbers`` | ``0222 2234`` to ``(022) 22-234`` | runs of the same digit |
| ``long-names`` | romanised names, longer in the test than in training | lengths never seen |
| ``capitals`` | the same names, capitalised in the test alone | symbols never seen |

``made/NAME.train.tsv``, ``made/NAME.dev.tsv`` and ``made/NAME.test.tsv`` name the parts.
"""

import random
from collections.abc import Callable
from pathlib import Path

from antiphon.exceptions import AntiphonError

_SIZES = {"train": 1000, "dev": 200, "test": 500}
_ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_CYRILLIC = dict(zip("абвгдезиклмнопрстуф", "abvgdeziklmnoprstuf", strict=True)) | {
    "х": "kh",
    "ч": "ch",
    "ш": "sh",
    "щ": "shch",
}

Pair = tuple[str, str]


def make(name: str, folder: Path) -> Path:
    """The file of a part of a made set, written below ``folder`` if it is not there yet."""
    stem, part, *_ = name.removeprefix("made/").split(".")
    if stem not in _MAKERS or part not in _SIZES:
        raise AntiphonError(f"{name}: not made here, expected made/SET.PART.tsv with SET one of {', '.join(_MAKERS)}")
    path = folder / f"{stem}.{part}.tsv"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for other, pairs in _parts(stem).items():
            text = "".join(f"{source}\t{target}\n" for source, target in pairs)
            (folder / f"{stem}.{other}.tsv").write_text(text, encoding="utf-8")
    return path


def _parts(stem: str) -> dict[str, list[Pair]]:
    """All parts of a set; no source is in two of them."""
    draw, seen = random.Random(stem), set[str]()
    parts: dict[str, list[Pair]] = {}
    for part, size in _SIZES.items():
        pairs: list[Pair] = []
        while len(pairs) < size:
            pair = _MAKERS[stem](draw, part)
            if pair[0] not in seen:
                seen.add(pair[0])
                pairs.append(pair)
        parts[part] = pairs
    return parts


def spell_number(number: int) -> str:
    """A number below a billion in English words."""
    for size, word in ((10**6, "million"), (1000, "thousand"), (100, "hundred")):
        if number >= size:
            rest = number % size
            return f"{spell_number(number // size)} {word}" + (f" {spell_number(rest)}" if rest else "")
    if number < 20:
        return _ONES[number]
    return _TENS[number // 10 - 2] + (f" {_ONES[number % 10]}" if number % 10 else "")


def _draw_number(draw: random.Random) -> int:
    """A number of one to seven digits; one of four repeats a digit."""
    digits = draw.randint(1, 7)
    if draw.random() < 0.25:
        return int(str(draw.randint(1, 9)) * digits)
    return draw.randrange(10**digits)


def _number_words(draw: random.Random, part: str) -> Pair:
    number = _draw_number(draw)
    return spell_number(number), str(number)


def _words_of_numbers(draw: random.Random, part: str) -> Pair:
    words, number = _number_words(draw, part)
    return number, words


def _phone_number(draw: random.Random, part: str) -> Pair:
    digits = "".join(draw.choice("0123456789") for _ in range(10))
    if draw.random() < 0.5:
        start, length = draw.randrange(7), draw.randint(3, 5)
        digits = (digits[:start] + digits[start] * length + digits[start:])[:10]
    return f"{digits[:4]} {digits[4:]}", f"({digits[:3]}) {digits[3:6]}-{digits[6:]}"


def _name(draw: random.Random, letters: int) -> str:
    return "".join(draw.choice(list(_CYRILLIC)) for _ in range(letters))


def _romanise(name: str) -> str:
    return "".join(_CYRILLIC[letter] for letter in name)


def _long_name(draw: random.Random, part: str) -> Pair:
    name = _name(draw, draw.randint(14, 18) if part == "test" else draw.randint(3, 10))
    return name, _romanise(name)


def _capital(draw: random.Random, part: str) -> Pair:
    """In the test the first letter is a capital, never seen: all but the letters written for it should be right."""
    name = _name(draw, draw.randint(4, 9))
    return (name.capitalize() if part == "test" else name), _romanise(name)


_MAKERS: dict[str, Callable[[random.Random, str], Pair]] = {
    "number-words": _number_words,
    "words-of-numbers": _words_of_numbers,
    "phone-numbers": _phone_number,
    "long-names": _long_name,
    "capitals": _capital,
}
