"""Data sets made by script: what a user would expect any transducer to learn from a few hundred pairs.

| set | pairs | asks for |
|---|---|---|
| ``number-words`` | ``seven hundred seventy seven`` to ``777``, letters to letters | repeated symbols |
| ``words-of-numbers`` | the other way round | outputs longer than inputs |
| ``phone-numbers`` | ``0222 2234`` to ``(022) 22-234`` | runs of the same digit |
| ``long-names`` | romanised names, longer in the test than in training | lengths never seen |
| ``capitals`` | the same names, capitalised in the test alone | symbols never seen |
| ``dates`` | ``4 Mar 1997``, ``March 4, 1997`` to ``1997-03-04`` | order |
| ``names`` | ``Lovelace, Ada King`` to ``Ada K. Lovelace`` | order, copies |
| ``abbreviations`` | ``12 Oak St. Apt. 4`` to ``12 Oak Street Apartment 4`` | copies beside a lexicon |
| ``transliteration`` | names of usual length to ``shch``, ``zh`` and the like | several letters for one |
| ``compounds`` | ``wohnungstür`` to ``wohnung tür`` | words of a lexicon, linking letters left out |
| ``speech`` | ``costs $12.50 at 3:45 pm`` to words | copies beside number words |
| ``ocr-noise`` | ``rnodem`` to ``modern``: English words with mistaken letters | spelling; no function |
| ``camel-case`` | ``parseHTTPResponse`` to ``parse http response`` | letters in common but for their case |

``made/NAME.train.tsv``, ``made/NAME.dev.tsv`` and ``made/NAME.test.tsv`` name the parts,
``made/NAME.pairs.tsv`` the first two together.
"""

import gzip
import random
from collections.abc import Callable
from functools import cache
from itertools import pairwise
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
    if stem not in _MAKERS or part not in (*_SIZES, "pairs"):
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
    return parts | {"pairs": parts["train"] + parts["dev"]}


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


_MONTHS = "January February March April May June July August September October November December".split()
_STREETS = "Oak Elm Main Park Lake Hill River Church Mill Station Garden Bridge Forest Market Castle Orchard".split()
_SHORT = {"St.": "Street", "Ave.": "Avenue", "Rd.": "Road", "Blvd.": "Boulevard", "Ln.": "Lane", "Sq.": "Square"}
_NOUNS = (
    "haus tür schloss garten wohnung zeitung heizung freiheit sicherheit bahn hof tisch lampe auto reifen wasser kanne "
    "brot messer sommer winter regen schirm mantel buch laden fenster rahmen stadt plan berg hütte kirche turm uhr"
).split()
_ITEMS = "costs ticket lunch train bus coat book meal room trip tea".split()
_CONFUSED = {"m": "rn", "rn": "m", "l": "1", "o": "0", "e": "c", "h": "b", "cl": "d", "w": "vv", "i": "l", "s": "5"}
_PARTS = "get set parse load save user file name list item http url xml json id page view data count size".split()
_ACRONYMS = frozenset({"http", "url", "xml", "json", "id"})


def _date(draw: random.Random, part: str) -> Pair:
    year, month, day = draw.randint(1900, 2030), draw.randint(1, 12), draw.randint(1, 28)
    name = _MONTHS[month - 1]
    forms = (f"{name} {day}, {year}", f"{day} {name} {year}", f"{day} {name[:3]} {year}", f"{day}.{month}.{year}")
    return draw.choice(forms), f"{year}-{month:02}-{day:02}"


def _person(draw: random.Random, part: str) -> Pair:
    first, middle, last = ("".join(draw.choice(_SYLLABLES) for _ in range(draw.randint(2, 3))) for _ in range(3))
    if draw.random() < 0.5:
        return f"{last}, {first}".title(), f"{first} {last}".title()
    return f"{last}, {first} {middle}".title(), f"{first} {middle[0]}. {last}".title()


_SYLLABLES = [start + vowel for start in "bdfgklmnprstv" for vowel in "aeiou"]


def _abbreviation(draw: random.Random, part: str) -> Pair:
    number, street, short = draw.randint(1, 999), draw.choice(_STREETS), draw.choice(list(_SHORT))
    if draw.random() < 0.5:
        return f"{number} {street} {short}", f"{number} {street} {_SHORT[short]}"
    apartment = draw.randint(1, 99)
    return f"{number} {street} {short} Apt. {apartment}", f"{number} {street} {_SHORT[short]} Apartment {apartment}"


def _transliterated(draw: random.Random, part: str) -> Pair:
    name = _name(draw, draw.randint(3, 12))
    return name, _romanise(name)


def _compound(draw: random.Random, part: str) -> Pair:
    nouns = [draw.choice(_NOUNS) for _ in range(draw.randint(2, 4))]
    linked = [noun + "s" if noun.endswith(("ung", "heit")) else noun for noun in nouns[:-1]]
    return "".join([*linked, nouns[-1]]), " ".join(nouns)


def _spoken(draw: random.Random, part: str) -> Pair:
    item, dollars, cents = draw.choice(_ITEMS), draw.randint(2, 99), draw.choice([0, draw.randint(2, 99)])
    hour, minute, half = draw.randint(1, 12), draw.randint(10, 59), draw.choice("ap")
    price = f"{spell_number(dollars)} dollars" + (f" and {spell_number(cents)} cents" if cents else "")
    written = f"${dollars}.{cents:02}" if cents else f"${dollars}"
    time = f"{spell_number(hour)} {spell_number(minute)} {half} m"
    return f"{item} {written} at {hour}:{minute} {half}m", f"{item} {price} at {time}"


@cache
def _words() -> list[str]:
    """Words of four to ten letters, of the list that comes with the demo."""
    text = gzip.decompress(Path("src/antiphon/demo/scowl.words.txt.gz").read_bytes()).decode()
    return [word for word in text.split() if word.isascii() and word.isalpha() and 4 <= len(word) <= 10]


def _misread(draw: random.Random, part: str) -> Pair:
    word = noisy = draw.choice(_words())
    for found in draw.sample(list(_CONFUSED), len(_CONFUSED)):
        if found in noisy and draw.random() < 0.3:
            noisy = noisy.replace(found, _CONFUSED[found], 1)
    return noisy, word


def _camel_case(draw: random.Random, part: str) -> Pair:
    words = [draw.choice(_PARTS) for _ in range(draw.randint(2, 5))]
    parts = [word.upper() if word in _ACRONYMS and at else word.title() for at, word in enumerate(words)]
    clashes = any(a.isupper() and b.isupper() for a, b in pairwise(parts))
    return _camel_case(draw, part) if clashes else (words[0] + "".join(parts[1:]), " ".join(words))


_MAKERS: dict[str, Callable[[random.Random, str], Pair]] = {
    "number-words": _number_words,
    "words-of-numbers": _words_of_numbers,
    "phone-numbers": _phone_number,
    "long-names": _long_name,
    "capitals": _capital,
    "dates": _date,
    "names": _person,
    "abbreviations": _abbreviation,
    "transliteration": _transliterated,
    "compounds": _compound,
    "speech": _spoken,
    "ocr-noise": _misread,
    "camel-case": _camel_case,
}
