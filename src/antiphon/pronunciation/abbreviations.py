"""What is said for units, abbreviations and signs."""


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
    %=percent
""")
"""Units after a number, in the singular."""
_SAME_IN_PLURAL = ("hertz", "kilohertz", "megahertz", "gigahertz", "percent")
ABBREVIATIONS = _table("""
    mr=mister, mrs=missus, ms=miz, dr=doctor, prof=professor, jr=junior, sr=senior, vs=versus, etc=et cetera,
    inc=incorporated, ltd=limited, corp=corporation, dept=department, approx=approximately, ave=avenue,
    blvd=boulevard, rd=road, jan=january, feb=february, apr=april, aug=august, sept=september, oct=october,
    nov=november, dec=december
""")
"""Abbreviations wherever they stand before a full stop."""
BEFORE_NAMES = _table("""
    st=saint, mt=mount, ft=fort, gen=general, gov=governor, sen=senator, rep=representative, col=colonel,
    hon=honorable, rev=reverend, lt=lieutenant, capt=captain, sgt=sergeant
""")
"""Abbreviations with a full stop before a capital letter."""
AFTER_NAMES = _table("st=street, dr=drive, co=company, mt=mountain")
"""Abbreviations with a full stop after a capitalised word, where no name follows."""
BEFORE_NUMBERS = _table("no=number, vol=volume, fig=figure, ch=chapter, p=page, pp=pages, sec=section")
"""Abbreviations with a full stop before a number."""
LATIN = {"e.g.": "for example", "i.e.": "that is", "a.k.a.": "also known as"}
SIGNS = _table("""
    &=and, +=plus, @=at, %=percent, °=degrees, ×=times, ÷=divided by, ~=about, <=less than, >=greater than,
    §=section, ±=plus or minus, ∞=infinity, ≈=about, $=dollar, €=euro, £=pound, ¥=yen,
    ²=squared, ³=cubed, ½=one half, ¼=one quarter, ¾=three quarters
""") | {"=": "equals"}
IN_ADDRESSES = {".": "dot", "/": "slash", "-": "dash", "_": "underscore", "@": "at", ":": "colon", "?": "question mark"}
"""Signs in addresses of the web and of mail."""
CURRENCIES = {"$": ("dollar", "cent"), "€": ("euro", "cent"), "£": ("pound", "penny"), "¥": ("yen", "")}
SCALES = {
    "K": "thousand",
    "M": "million",
    "B": "billion",
    "k": "thousand",
    "m": "million",
    "bn": "billion",
    "tn": "trillion",
}
MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]  # index 0 is January


def unit(name: str, is_one: bool) -> list[str]:
    """What is said for a unit after a number."""
    first, *rest = UNITS[name].split()
    if first in ("square", "cubic", "kilowatt"):
        first, rest = UNITS[name].rsplit(" ", 1)[0], [UNITS[name].rsplit(" ", 1)[1]]
        return [*first.split(), *(rest if is_one else [f"{rest[0]}s"])]
    if is_one or first in _SAME_IN_PLURAL:
        return [first, *rest]
    return ["feet" if first == "foot" else f"{first}s", *rest]
