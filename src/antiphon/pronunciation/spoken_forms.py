"""What is said for what is written otherwise than as words: numbers, money, times, dates, abbreviations, addresses.

Each rule is a pattern and a function from what it found to what is said. At a position, the rules for its first
character are tried in order.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

from antiphon.pronunciation.number_words import cardinal, decimal, each_digit, ordinal, plural_of, year


def _table(text: str) -> dict[str, str]:
    """Pairs ``short=what is said`` between commas."""
    return dict(pair.strip().split("=") for pair in text.split(","))


UNITS = _table("""
    km=kilometer, m=meter, cm=centimeter, mm=millimeter, nm=nanometer, mi=mile, ft=foot, yd=yard, kg=kilogram, g=gram,
    mg=milligram, lb=pound, lbs=pound, oz=ounce, l=liter, L=liter, ml=milliliter, mL=milliliter, sec=second,
    ms=millisecond, min=minute, h=hour, hr=hour, hrs=hour, Hz=hertz, kHz=kilohertz, MHz=megahertz, GHz=gigahertz,
    W=watt, kW=kilowatt, MW=megawatt, kWh=kilowatt hour, V=volt, KB=kilobyte, kB=kilobyte, MB=megabyte, GB=gigabyte,
    TB=terabyte, mph=mile per hour, km/h=kilometer per hour, m/s=meter per second, km²=square kilometer,
    m²=square meter, cm²=square centimeter, m³=cubic meter, °C=degree celsius, °F=degree fahrenheit, °=degree,
    %=percent, EUR=euro, USD=dollar, GBP=pound,
    tsp=teaspoon, tbsp=tablespoon, yr=year, yrs=year
""")
"""Units after a number, in the singular."""
_SAME_IN_PLURAL = ("hertz", "kilohertz", "megahertz", "gigahertz", "percent")
ABBREVIATIONS = _table("""
    mr=mister, mrs=missus, ms=miz, dr=doctor, prof=professor, jr=junior, sr=senior, vs=versus, etc=et cetera,
    inc=incorporated, ltd=limited, corp=corporation, dept=department, approx=approximately, ave=avenue,
    blvd=boulevard, rd=road, jan=january, feb=february, apr=april, aug=august, sept=september, oct=october,
    nov=november, dec=december, tues=tuesday, thurs=thursday
""")
"""Abbreviations wherever they stand before a full stop."""
BEFORE_NAMES = _table("""
    st=saint, mt=mount, ft=fort, gen=general, gov=governor, sen=senator, rep=representative, col=colonel,
    hon=honorable, rev=reverend, lt=lieutenant, capt=captain, sgt=sergeant
""")
"""Abbreviations with a full stop before a capital letter."""
AFTER_NAMES = _table("st=street, dr=drive, co=company, mt=mountain")
"""Abbreviations with a full stop after a capitalised word, where no name follows."""
BEFORE_NUMBERS = _table("""
    no=number, vol=volume, fig=figure, ch=chapter, p=page, pp=pages, sec=section, apt=apartment, rm=room, eq=equation,
    eqs=equations
""")
"""Abbreviations with a full stop before a number."""
LATIN = {"e.g.": "for example", "i.e.": "that is", "a.k.a.": "also known as"}
SIGNS = _table("""
    &=and, +=plus, @=at, %=percent, °=degrees, ×=times, ÷=divided by, <=less than, >=greater than,
    §=section, ±=plus or minus, ∞=infinity, ≈=about, $=dollar, €=euro, £=pound, ¥=yen, ₹=rupee, ¢=cent,
    ₿=bitcoin, √=square root of, ≠=not equal to, ²=squared, ³=cubed, ½=one half, ¼=one quarter, ¾=three quarters
""") | {"=": "equals"}
IN_ADDRESSES = {".": "dot", "/": "slash", "-": "dash", "_": "underscore", "@": "at", ":": "colon", "?": "question mark"}
"""Signs in addresses of the web and of mail."""
CURRENCIES = {
    "$": ("dollar", "cent"),
    "€": ("euro", "cent"),
    "£": ("pound", "penny"),
    "¥": ("yen", ""),
    "₹": ("rupee", "paisa"),
    "¢": ("cent", ""),
}
SCALES = _table("K=thousand, M=million, B=billion, k=thousand, m=million, bn=billion, tn=trillion")
MONTHS = "january february march april may june july august september october november december".split()
"""Index 0 is January."""


def unit(name: str, is_one: bool) -> list[str]:
    """What is said for a unit after a number."""
    first, *rest = UNITS[name].split()
    if first in ("square", "cubic", "kilowatt"):
        first, rest = UNITS[name].rsplit(" ", 1)[0], [UNITS[name].rsplit(" ", 1)[1]]
        return [*first.split(), *(rest if is_one else [f"{rest[0]}s"])]
    if is_one or first in _SAME_IN_PLURAL:
        return [first, *rest]
    return ["feet" if first == "foot" else f"{first}s", *rest]


class Piece(NamedTuple):
    """What is said as one word: a word, letters one by one, or given phonemes; ``tag`` is a given part of speech."""

    text: str
    is_spelt: bool = False
    phonemes: tuple[str, ...] | None = None
    tag: str = ""


Said = list[str | Piece]
"""Pieces; a string is a word."""
Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], Said]]
_RULES: dict[str, list[Rule]] = {"digit": [], "letter": [], "sign": []}
"""The rules by the sort of first character."""
_NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?"
_SPACED_NUMBER = r"\d{1,3}(?:[\u00a0\u2009\u202f]\d{3}){1,6}(?!\d)|[1-9]\d{0,2}(?: \d{3}){0,5} 000(?!\d)"
"""Thousands that thin spaces separate; other spaces do only before 000."""
_SCALE = r"thousand|million|billion|trillion|(?:[KMBkm]|[bt]n)(?![^\W_])"
_NO_LETTER = r"(?![^\W\d_])"
_UNIT = "|".join(sorted(map(re.escape, UNITS), key=len, reverse=True))
_MONTH = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_NAMED = r"(?=\s+[A-Z])"
_YEARS = range(1010, 2100)
"""Numbers of four digits that are read as years."""
_MOST_COUNTED_DIGITS = 9
"""Longer numbers without commas are codes, unless millions are round."""
_DENOMINATORS = (2, 3, 4, 5, 6, 8, 10, 16, 32, 64, 100)
_ROMAN = {"I": 1, "V": 5, "X": 10}
_KINGS = frozenset(
    (
        "Alexander Benedict Catherine Charles Clement Edward Elizabeth Francis Frederick George Gregory Henry Innocent "
        "James John Leo Louis Mary Napoleon Nicholas Paul Peter Philip Pius Richard William Pope King Queen"
    ).split()
)
_COUNTED = frozenset("Act Appendix Article Book Chapter Class Level Part Phase Section Type Volume War".split())
"""Words after which a single letter can be a Roman number."""
_LETTER_MAY_FOLLOW = {"I": _COUNTED, "V": _COUNTED | _KINGS, "X": _COUNTED | _KINGS}


def sort_of(character: str) -> str:
    """Which rules can begin with a character."""
    return "letter" if character.isalpha() else "digit" if character.isdecimal() else "sign"


def find_rule(line: str, start: int) -> tuple[re.Match[str], Said] | None:
    """What stands at a position if a rule fits, and what is said for it."""
    for pattern, say in _RULES[sort_of(line[start])]:
        if found := pattern.match(line, start):
            return found, say(found)
    return None


def _rule(pattern: str, *sorts: str) -> Callable[[Callable[[re.Match[str]], Said]], Callable[[re.Match[str]], Said]]:
    """Registers a function for a pattern that begins with these sorts of characters."""

    def register(say: Callable[[re.Match[str]], Said]) -> Callable[[re.Match[str]], Said]:
        for sort in sorts:
            _RULES[sort].append((re.compile(pattern), say))
        return say

    return register


def _words(text: str) -> Said:
    return [*text.split()]


@_rule(r"\[([^\[\]\n]+)\]\((?:/([^()/\n]*)/|([A-Za-z]{1,5}\$?))\)", "sign")
def _override(found: re.Match[str]) -> Said:
    """``[knight](/N AY T/)``: these phonemes; ``[read](VBD)``: this part of speech."""
    text, phonemes, tag = found.groups()
    return [Piece(text, phonemes=tuple(phonemes.split())) if tag is None else Piece(text, tag=tag)]


# Parts of an address have limits, so that long text without any is read in linear time.
_DOMAIN = r"(?:[A-Za-z0-9][\w-]{0,62}\.){1,8}(?:com|org|net|edu|gov|io|ai|dev|info|co|uk|de|fr|ca|eu)(?![\w-])(?!\.\w)"


_MAILBOX = r"[\w+-]{1,64}(?:\.[\w+-]{1,64}){0,8}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}"
_PLACE = r"(?::\d+)?(?:/[^\s<>\",;:!?)\]]*(?<!\.))?"


@_rule(rf"(?:https?://|www\.)[^\s<>\"]*[^\s<>\".,;:!?)\]'’]|{_MAILBOX}|{_DOMAIN}{_PLACE}", "letter", "digit")
def _address(found: re.Match[str]) -> Said:
    """``name@example.com``: name at example dot com."""
    said: Said = []
    for part in re.findall(r"[^\W\d_]+|\d+|[^\w\s]|_", re.sub(r"^https?://", "", found[0])):
        if part.isdecimal():
            said += cardinal(part)
        elif part.lower() == "www":
            said.append(Piece(part, is_spelt=True))
        else:
            said += _words(part if part.isalpha() else IN_ADDRESSES.get(part) or SIGNS.get(part, ""))
    return said


@_rule(rf"([$£€¥₹])\s?({_NUMBER})(?:[\s-]?({_SCALE}))?", "sign")
def _money(found: re.Match[str]) -> Said:
    return _amount(*found.groups())


@_rule(rf"({_NUMBER})\s?([£€¥₹¢])(?!\d)", "digit")
def _money_after_number(found: re.Match[str]) -> Said:
    return _amount(found[2], found[1])


def _amount(sign: str, amount: str, scale: str | None = None) -> Said:
    (one, part), whole = CURRENCIES[sign], amount.replace(",", "")
    several = one if one == "yen" else f"{one}s"
    if scale:
        return [*decimal(amount), SCALES.get(scale, scale), several]
    units, _, rest = whole.partition(".")
    if len(rest) != 2 or not part:
        return [*decimal(amount), one if whole == "1" else several]
    main = [*cardinal(units), one if units == "1" else several] if units.strip("0") or not int(rest) else []
    cents = "pence" if part == "penny" and int(rest) != 1 else part if int(rest) == 1 else f"{part}s"
    return [*main, *(["and"] if main else []), *cardinal(str(int(rest))), cents] if int(rest) else [*main]


@_rule(r"([01]?\d|2[0-4]):([0-5]\d)(?::([0-5]\d))?(?:\s?([AaPp])\.?[Mm]\b\.?)?(?![\d:])", "digit")
def _time(found: re.Match[str]) -> Said:
    hour, minute, second, half = found.groups()
    said: Said = [*cardinal(str(int(hour)))]
    if int(minute):
        said += [*(["oh"] if minute[0] == "0" else []), *cardinal(str(int(minute)))]
    elif not half:
        said.append("hundred" if int(hour) > 12 or not int(hour) else "o'clock")
    if second:
        said += ["and", *cardinal(str(int(second))), "second" if int(second) == 1 else "seconds"]
    return said + _half(half)


@_rule(r"(\d+):(?=\d+(?![\d:]))", "digit")
def _ratio(found: re.Match[str]) -> Said:
    """The first number of ``3:1``, and to; of ``John 3:7`` the number alone."""
    is_verse = re.search(r"[A-Z][a-z]+\s$", found.string[max(0, found.start() - 20) : found.start()])
    return [*cardinal(found[1]), *([] if is_verse else ["to"])]


@_rule(r"(1[0-2]|[1-9])\s?([AaPp])\.?[Mm]\b\.?", "digit")
def _full_hour(found: re.Match[str]) -> Said:
    return [*cardinal(found[1]), *_half(found[2])]


def _half(letter: str | None) -> Said:
    """The letters of a.m. or p.m."""
    return [Piece(f"{letter.lower()}m", is_spelt=True)] if letter else []


@_rule(r"([12]\d{3})-(0?[1-9]|1[0-2])-([0-2]?\d|3[01])(?![\d-])", "digit")
def _iso_date(found: re.Match[str]) -> Said:
    return _date(*found.groups())


@_rule(r"(0?[1-9]|1[0-2])/([0-2]?\d|3[01])/([12]\d{3})(?!\d)", "digit")
def _us_date(found: re.Match[str]) -> Said:
    return _date(found[3], found[1], found[2])


def _date(year_: str, month: str, day: str) -> Said:
    return [MONTHS[int(month) - 1], *ordinal(str(int(day))), *year(year_)]


@_rule(
    rf"({_MONTH})[a-z]*\.?\s([12]?\d|3[01])(?:st|nd|rd|th)?(?![\d:.%,]\d|\d)(?!\s?(?:{_UNIT}){_NO_LETTER})", "letter"
)
def _day(found: re.Match[str]) -> Said:
    """``March 4``: march fourth; what only begins like a month is read as it stands."""
    name = next(month for month in MONTHS if month.startswith(found[1].lower()))
    written = re.match(r"[A-Za-z]+", found[0])
    assert written is not None
    if written[0].lower() not in (name, name[:3], name[:4]):
        return [written[0], *cardinal(found[2])]
    return [name, *ordinal(found[2])]


_TELEPHONE = (
    r"(?:\+?\d{1,3}[ -])?(?:\(\d{3}\)\s?|\d{3}[-. ])\d{3}[-. ]\d{4}",
    r"\+\d{1,3}(?:[ -]\d{2,5}){2,5}",
    r"0\d{2,4}(?:[ -]\d{3,4}){1,3}",
    r"\d{3}-\d{4}",
)
"""In America, from abroad, in Britain, in town."""


@_rule(rf"(?:{'|'.join(_TELEPHONE)})(?![\d-])", "digit", "sign")
def _telephone(found: re.Match[str]) -> Said:
    return [*(["plus"] if found[0][0] == "+" else []), *each_digit(re.sub(r"\D", "", found[0]))]


@_rule(r"(?:\d{5}-\d{4}|\d{1,12}(?:-\d{1,12}){2,8}|24-7|(\d{1,4})-\1)(?![\d-])", "digit")
def _code(found: re.Match[str]) -> Said:
    """Numbers that dashes join and that are no range: codes digit by digit, ``1-2-3`` and ``50-50``."""
    parts = found[0].split("-")
    is_code = any(len(part) > 2 for part in parts) and not found[1]
    return [word for part in parts for word in (each_digit(part) if is_code else cardinal(part))]


@_rule(r"(?:(?<=:\d\d)|(?<=[\dkMBn]))[–-](?=[$£€¥₹]\d|\d{1,2}:\d)|(?<=:\d\d)[–-](?=\d)", "sign")
def _range_of_times_or_money(_: re.Match[str]) -> Said:
    return ["to"]


@_rule(r"(?<!\w)['’](\d\d)(?!\w)", "sign")
def _short_year(found: re.Match[str]) -> Said:
    return ["oh", *cardinal(found[1][1])] if found[1][0] == "0" else [*cardinal(found[1])]


@_rule(r"WW(I{1,2})(?!\w)", "letter")
def _world_war(found: re.Match[str]) -> Said:
    return ["World", "War", *cardinal(str(len(found[1])))]


@_rule(r"\d+(?:\.\d+){2,}", "digit")
def _version(found: re.Match[str]) -> Said:
    """``1.2.3``: a version with points; four numbers are an address, with dots."""
    first, *others = found[0].split(".")
    between = "dot" if len(others) == 3 else "point"
    return [*cardinal(first), *(word for each in others for word in (between, *cardinal(each)))]


@_rule(rf"(\d{{1,3}}(?:,\d{{3}})+|\d+)(?:st|nd|rd|th){_NO_LETTER}", "digit")
def _ordinal(found: re.Match[str]) -> Said:
    return [*ordinal(found[1].replace(",", ""))]


@_rule(r"(?:['’](\d0)|([12]\d\d0|\d0))['’]?s(?![^\W_])", "digit", "sign")
def _decade(found: re.Match[str]) -> Said:
    digits = found[1] or found[2]
    *words, last = year(digits) if len(digits) == 4 else cardinal(str(int(digits)))
    return [*words, plural_of(last)]


@_rule(r"([1-9]\d?)/([2-9]|[1-9]\d)(?![\d/])", "digit")
def _fraction(found: re.Match[str]) -> Said:
    """``3/4``: three quarters; ``24/7`` and ``9/11`` are two numbers."""
    above, below = found.groups()
    if int(above) >= int(below) or int(below) not in _DENOMINATORS:
        return [*cardinal(above), *cardinal(below)]
    if below == "2":
        return [*cardinal(above), "half" if above == "1" else "halves"]
    *words, last = ["quarter"] if below == "4" else ordinal(below)
    return [*cardinal(above), *words, last if above == "1" else f"{last}s"]


@_rule(r"(\d{1,3})(?:\s(?=[1-9]/(?:2|3|4|5|8|16)(?![\d/]))|\s?(?=[½¼¾]))", "digit")
def _mixed_number(found: re.Match[str]) -> Said:
    """The whole number of ``3 1/4``, and and; the fraction follows by itself."""
    return [*cardinal(found[1]), "and"]


@_rule(rf"({_NUMBER})(?:[–—-]|\s[–—-]\s)(?={_NUMBER}(?![\d-]))", "digit")
def _range(found: re.Match[str]) -> Said:
    """The first number of ``10-20``, and to; the second follows by itself."""
    return [*_number_words(found[1]), "to"]


@_rule(rf"((?<![^\s(])[-−+])?({_NUMBER})\s?({_UNIT})(?![^\W\d_]|[²³])", "digit", "sign")
def _measure(found: re.Match[str]) -> Said:
    sign, count, name = found.groups()
    return [*_sign(sign), *decimal(count), *unit(name, count == "1")]


@_rule(_SPACED_NUMBER, "digit")
def _spaced_number(found: re.Match[str]) -> Said:
    return [*cardinal(re.sub(r"\D", "", found[0]))]


@_rule(r"(\d+)['’](\d{1,2})(?:[\"”]|['’]{2})", "digit")
def _height(found: re.Match[str]) -> Said:
    """``6'2"``: six foot two."""
    return [*cardinal(found[1]), "foot", *cardinal(found[2])]


@_rule(r"(\d+)x(?![^\W_]|\s?[-+*/=^<>])", "digit")
def _times(found: re.Match[str]) -> Said:
    """``3x``: three times."""
    return [*cardinal(found[1]), "times"]


@_rule(r"(?<=\d)x(?=\d)", "letter")
def _by(_: re.Match[str]) -> Said:
    """``4x4``: four by four."""
    return ["by"]


@_rule(r"(?<![\w.])\.\d+", "sign")
def _below_one(found: re.Match[str]) -> Said:
    return ["point", *each_digit(found[0][1:])]


@_rule(rf"((?<![^\s(])[-−])?({_NUMBER})", "digit", "sign")
def _number(found: re.Match[str]) -> Said:
    return [*_sign(found[1]), *_number_words(found[2])]


def _sign(sign: str | None) -> Said:
    return ["plus" if sign == "+" else "minus"] if sign else []


def _number_words(text: str) -> Said:
    """A year, a code that is too long to be counted, or a number."""
    if text.isdecimal() and len(text) > _MOST_COUNTED_DIGITS and not text.endswith("000000"):
        return [*each_digit(text)]
    is_year = len(text) == 4 and text.isdecimal() and int(text) in _YEARS
    return [*year(text)] if is_year else [*decimal(text)]


@_rule(r"#(?=\d)", "sign")
def _number_sign(_: re.Match[str]) -> Said:
    return ["number"]


@_rule(r"~(?=\d)", "sign")
def _about(_: re.Match[str]) -> Said:
    return ["about"]


@_rule(r"[₀-₉]+", "sign")
def _index_below(found: re.Match[str]) -> Said:
    return [*cardinal(unicodedata.normalize("NFKC", found[0]))]


@_rule(r"(?<=\d)(?:\^([-−]?\d+)|(?![²³](?![⁰¹²³⁴-⁹]))([⁻]?[⁰¹²³⁴-⁹]+))", "sign")
def _power(found: re.Match[str]) -> Said:
    """``10^6``: to the power of six."""
    power = unicodedata.normalize("NFKC", found[1] or found[2])
    return [*_words("to the power of"), *(["minus"] if power[0] in "-−" else []), *cardinal(power.lstrip("-−"))]


@_rule(r"[α-ωΑ-Ω](?![^\W_])", "letter")
def _greek_letter(found: re.Match[str]) -> Said:
    """A single letter of Greek: its name."""
    return [unicodedata.name(found[0]).split()[-1].lower()]


@_rule(r"([A-Ga-g])#(?!\w)", "letter")
def _sharp(found: re.Match[str]) -> Said:
    return [Piece(found[1], is_spelt=True), "sharp"]


@_rule(r"CO(?=[2₂](?![^\W_]))", "letter")
def _formula(found: re.Match[str]) -> Said:
    return [Piece(found[0], is_spelt=True)]


@_rule(r"[Ww]/(?:(o(?!\w))|(?=\s))", "letter")
def _with(found: re.Match[str]) -> Said:
    return ["without" if found[1] else "with"]


def _abbreviation(table: dict[str, str], before: str = "", after: str = "") -> None:
    """Registers the abbreviations of a table, with their full stop."""
    names = "|".join(sorted(table, key=len, reverse=True))
    pattern = rf"{before}((?i:{names}))\.{after}"
    _rule(pattern, "letter")(lambda found: _words(table[found[1].lower()]))


_abbreviation(BEFORE_NUMBERS, after=r"(?=\s?\d)")
_abbreviation(BEFORE_NAMES, after=_NAMED)
_abbreviation(AFTER_NAMES, before=r"(?<=[a-z]\s)", after=r"(?!\s+[A-Z])")
_abbreviation(ABBREVIATIONS)


@_rule("|".join(map(re.escape, LATIN)), "letter")
def _latin(found: re.Match[str]) -> Said:
    return _words(LATIN[found[0]])


@_rule(r"(?:[A-Za-z]\.){2,}(?:['’]s\b)?", "letter")
def _initials(found: re.Match[str]) -> Said:
    """``U.S.``: the letters."""
    return [Piece(found[0].replace(".", "").replace("’", "'"), is_spelt=True)]


@_rule(r"A(?=-\w|\s*(?:[.,;:!?)]|$))(?!\.\w)", "letter")
def _letter_a(found: re.Match[str]) -> Said:
    """``A-level`` and ``plan A``: the letter, not the article."""
    return [Piece("A", is_spelt=True)]


@_rule(r"[IVX]+(?![\w'’.-]\w|\w)", "letter")
def _roman(found: re.Match[str]) -> Said:
    """A Roman number after a word that can have one; else the letters as a word."""
    before = re.search(r"([A-Z][a-z]+)\s$", found.string[max(0, found.start() - 20) : found.start()])
    value = _roman_value(found[0])
    if before is None or value is None or (len(found[0]) == 1 and before[1] not in _LETTER_MAY_FOLLOW[found[0]]):
        return [found[0]]
    return ["the", *ordinal(str(value))] if before[1] in _KINGS else [*cardinal(str(value))]


def _roman_value(letters: str) -> int | None:
    """The value of a Roman number below 40, or None for what is no such number."""
    if not re.fullmatch(r"X{0,3}(?:IX|IV|V?I{0,3})", letters):
        return None
    values = [_ROMAN[letter] for letter in letters]
    return sum(-one if one < two else one for one, two in zip(values, [*values[1:], 0], strict=True))
