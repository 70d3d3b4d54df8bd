"""Numbers in English words."""

_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = ["", "", *"twenty thirty forty fifty sixty seventy eighty ninety".split()]
_GROUPS = ["", *"thousand million billion trillion quadrillion".split()]
_IRREGULAR = "one=first two=second three=third five=fifth eight=eighth nine=ninth twelve=twelfth"
_ORDINALS = dict(pair.split("=") for pair in _IRREGULAR.split())
_MOST_DIGITS = 3 * len(_GROUPS)
"""Longer numbers are read digit by digit."""


def cardinal(digits: str) -> list[str]:
    """``12`` -> twelve; a number that begins with 0 or is very large is read digit by digit."""
    if len(digits) > _MOST_DIGITS or (digits.startswith("0") and len(digits) > 1):
        return each_digit(digits)
    number = int(digits)
    if not number:
        return [_SMALL[0]]
    groups = []
    while number:
        number, rest = divmod(number, 1000)
        groups.append(rest)
    named = [(_below_1000(rest), _GROUPS[place]) for place, rest in enumerate(groups) if rest]
    return [word for words, name in reversed(named) for word in (*words, name) if word]


def _below_1000(number: int) -> list[str]:
    hundreds, rest = divmod(number, 100)
    words = [_SMALL[hundreds], "hundred"] if hundreds else []
    if rest >= len(_SMALL):
        tens, rest = divmod(rest, 10)
        words.append(_TENS[tens])
    return [*words, _SMALL[rest]] if rest else words


def ordinal(digits: str) -> list[str]:
    """``12`` -> twelfth."""
    *words, last = cardinal(digits)
    return [*words, ordinal_of(last)]


def ordinal_of(word: str) -> str:
    """``twenty`` -> twentieth."""
    return _ORDINALS.get(word) or (f"{word[:-1]}ieth" if word.endswith("y") else f"{word.removesuffix('t')}th")


def plural_of(word: str) -> str:
    """``ninety`` -> nineties, ``hundred`` -> hundreds."""
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}es" if word == "six" else f"{word}s"


def year(digits: str) -> list[str]:
    """``1984`` -> nineteen eighty four, ``1900`` -> nineteen hundred, ``2005`` -> two thousand five."""
    century, rest = divmod(int(digits), 100)
    if not century % 10 or len(digits) != 4:
        if rest < 10 or len(digits) != 4:
            return cardinal(digits)
    elif not rest:
        return [*_below_1000(century), "hundred"]
    return [*_below_1000(century), *(["oh"] if rest < 10 else []), *_below_1000(rest)]


def each_digit(digits: str) -> list[str]:
    """``007`` -> zero zero seven."""
    return [_SMALL[int(digit)] for digit in digits]


def decimal(text: str) -> list[str]:
    """``3.14`` -> three point one four; commas between thousands are skipped."""
    whole, point, rest = text.replace(",", "").partition(".")
    return [*cardinal(whole or "0"), *(["point", *each_digit(rest)] if point else [])]
