"""Small files of pairs as people have them, made by script: what is in each, and what is to be found, or said.

Every file has the same 120 pairs, or something that is wrong with them.
"""

import gzip
import json
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.toy import words

WORDS = list(dict.fromkeys(words(200)))[:120]
LETTERS = [(word, f"{word}ä{word[0]}") for word in WORDS]
SYMBOLS = [(word, " ".join(word.upper())) for word in WORDS]
TAGGED = [(word, f"N;{number}", word + end) for word in WORDS[:60] for number, end in (("SG", ""), ("PL", "en"))]
SENTENCES = [
    (" ".join(WORDS[n : n + 6]), " ".join(word[::-1] for word in WORDS[n : n + 6])) for n in range(len(WORDS) - 6)
]


class Odd(NamedTuple):
    """A file: its bytes and name, the recipe chosen, and texts of the decisions; or, without a recipe, of the error."""

    about: str
    content: bytes
    recipe: str = ""
    found: tuple[str, ...] = ()
    name: str = "pairs.txt"


def lines(rows: Sequence[Sequence[str]], separator: str = "\t", end: str = "\n") -> str:
    """Rows as text."""
    return "".join(separator.join(row) + end for row in rows)


def quoted(rows: Sequence[Sequence[str]]) -> str:
    """Rows as a spreadsheet writes them."""
    return lines([[f'"{cell}"' for cell in row] for row in rows], ",")


def swapped(rows: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Targets first."""
    return [(target, source) for source, target in rows]


def odd_files() -> Iterator[Odd]:
    """All files."""
    yield from _encodings()
    yield from _columns()
    yield from _tokens()
    yield from _doubtful()
    yield from _refused()


def _encodings() -> Iterator[Odd]:
    text = lines(LETTERS)
    yield Odd("UTF-8", text.encode(), "letters", ("120 rows, tab between columns; UTF-8",))
    yield Odd("UTF-8 with a mark", text.encode("utf-8-sig"), "letters", ("120 rows, tab between columns; UTF-8",))
    yield Odd("UTF-16 of spreadsheets", text.encode("utf-16"), "letters", ("UTF-16",))
    yield Odd("UTF-16, big end first", b"\xfe\xff" + text.encode("utf-16-be"), "letters", ("UTF-16",))
    yield Odd("UTF-16 without a mark", text.encode("utf-16-le"), "letters", ("UTF-16",))
    yield Odd("Windows", text.replace("a", "’").encode("cp1252"), "letters", ("not UTF-8, read as Windows-1252",))
    yield Odd("Latin-1", text.replace("a", "\x81").encode("latin-1"), "letters", ("not UTF-8, read as Latin-1",))
    yield Odd("gzip", gzip.compress(text.encode()), "letters", ("120 rows",), "pairs.tsv.gz")
    decomposed = lines([*LETTERS[:60], *((word, unicodedata.normalize("NFD", text)) for word, text in LETTERS[60:])])
    yield Odd("NFC and NFD", decomposed.encode(), "letters", ("60 texts with letters in parts (NFD)",))
    yield Odd("NFD alone", unicodedata.normalize("NFD", text).encode(), "letters", ("120 rows",))
    yield Odd("line ends of Windows", lines(LETTERS, end="\r\n").encode(), "letters", ("120 rows",))
    yield Odd("line ends of old Macs", lines(LETTERS, end="\r").encode(), "letters", ("120 rows",))
    yield Odd("Hangul", lines([(chr(0xAC00 + 7 * n), word) for n, word in enumerate(WORDS)]).encode(), "letters")
    yield Odd("emoji", lines([(word, f"{word}🙂👩‍🚀") for word in WORDS]).encode(), "letters", ("🙂",))


def _columns() -> Iterator[Odd]:
    yield Odd("commas", quoted(LETTERS).encode(), "letters", ("comma between columns",), "pairs.csv")
    yield Odd("semicolons", lines(LETTERS, ";").encode(), "letters", ("semicolon between columns",))
    yield Odd("bars", lines(SYMBOLS, "|").encode(), "g2p", ("bar between columns",))
    yield Odd("Kaldi's lexicon", lines(SYMBOLS, " ").encode(), "g2p", ("first space between columns",))
    dictionary = ";;; CMUdict\n" + lines([*SYMBOLS, (f"{WORDS[0]}(2)", "A B")], "  ")
    yield Odd("CMUdict", dictionary.encode(), "g2p", ("first space", "1 source with several targets"))
    yield Odd("header", lines([("word", "ipa"), *SYMBOLS]).encode(), "g2p", ("columns word, ipa",))
    yield Odd(
        "header, target first", lines([("ipa", "word"), *swapped(SYMBOLS)]).encode(), "g2p", ("column 2, letters",)
    )
    yield Odd(
        "unknown names", lines([("Wort", "Lautschrift"), *SYMBOLS]).encode(), "g2p", ("columns Wort, Lautschrift",)
    )
    yield Odd("lemma, tag, form", lines(TAGGED).encode(), "inflection", ("column 2, 2 different; such as N;SG",))
    usual = [(lemma, form, tag) for lemma, tag, form in TAGGED]
    yield Odd("lemma, form, tag", lines(usual).encode(), "inflection", ("column 3, 2 different",))
    yield Odd(
        "two more columns, named", lines([("id", "lemma", "who", "form"), *_wide()]).encode(), "letters", ("column 2",)
    )
    yield Odd("four columns", lines(_wide()).encode(), found=("4 columns", "expected source and target"))
    numbered = lines([(str(n), *row) for n, row in enumerate(LETTERS)])
    yield Odd("numbered rows", numbered.encode(), "letters", ("column 2, letters", "column 3, letters"))
    yield Odd("symbols first", lines(swapped(SYMBOLS)).encode(), "letters", ("the other way round",))


def _wide() -> list[tuple[str, str, str, str]]:
    return [(str(n), source, "me", target) for n, (source, target) in enumerate(LETTERS)]


def _tokens() -> Iterator[Odd]:
    yield Odd("phonemes without spaces", lines([(word, word.upper()) for word in WORDS]).encode(), "letters")
    yield Odd("no-break spaces", lines(SYMBOLS).replace(" ", "\xa0").encode(), "g2p", ("symbols between spaces",))
    yield Odd("symbols on both sides", lines([(" ".join(a), b) for a, b in SYMBOLS]).encode(), "letters", ("symbols",))
    yield Odd("sentences", lines(SENTENCES).encode(), "words", ("words: ",))
    numbers = [(str(n), " ".join(["one", "two", "three"][int(digit) % 3] for digit in str(n))) for n in range(100, 400)]
    yield Odd("numbers to words", lines(numbers).encode(), "g2p", ("symbols between spaces",))
    yield Odd("words to numbers", lines(swapped(numbers)[:100]).encode(), "letters", ("the other way round",))
    names = [(f"{a}, {b}", f"{b} {a}") for a, b in zip(WORDS[:60], WORDS[60:], strict=True)]
    yield Odd("another order", lines(names).encode(), "letters", ("in another order: attention",))


def _doubtful() -> Iterator[Odd]:
    yield Odd("repeated rows", lines(LETTERS + LETTERS[:7]).encode(), "letters", ("7 rows that repeat another",))
    odd = [*LETTERS, *((word, "other") for word in WORDS[:3])]
    yield Odd("contradictions", lines(odd).encode(), "letters", ("3 sources with several targets",))
    empty = [*LETTERS, ("", "a"), ("b", " ")]
    yield Odd("empty cells", lines(empty).encode(), "letters", ("2 rows without a source or a target",))
    yield Odd("blank lines", lines(LETTERS).replace("\n", "\n\n \n").encode(), "letters", ("120 rows",))
    yield Odd(
        "10,000 letters", lines([*LETTERS, ("a" * 10_000, "b")]).encode(), "letters", ("more than 1,000 letters",)
    )
    yield Odd("unchanged", lines([(word, word) for word in WORDS]).encode(), "letters", ("120 of 120 targets equal",))
    control = lines([(f"{word}\x01\x0b\u2028", target) for word, target in LETTERS])
    yield Odd("control characters", control.encode(), "letters", ("120 rows",))


def _refused() -> Iterator[Odd]:
    yield Odd("empty", b"", found=("no text",))
    yield Odd("blank", b" \n\t\n", found=("no text",))
    yield Odd("names alone", b"source\ttarget\n", found=("nothing but a first line",))
    yield Odd("one column", lines([(word,) for word in WORDS]).encode(), found=("one column",))
    yield Odd("a few pairs", lines(LETTERS[:9]).encode(), found=("9 pairs, expected 60",))
    yield Odd("a broken row", lines([*LETTERS, ("a", "b", "c")]).encode(), found=("121: 3 columns",))
    yield Odd("one target", lines([(word, "x") for word in WORDS]).encode(), found=("all targets are 'x'",))
    yield Odd("bytes", bytes(range(256)) * 40, found=("has bytes of 0",))
    yield Odd("a spreadsheet", b"PK\x03\x04" + bytes(60), found=("a zip file or a spreadsheet",))
    objects = "".join(json.dumps({"source": a, "target": b}) + "\n" for a, b in LETTERS)
    yield Odd("JSON lines", objects.encode(), found=("seems to be JSON",))
    yield Odd("a JSON list", json.dumps(LETTERS, indent=1).encode(), found=("seems to be JSON",))
    yield Odd(
        "an open quotation mark",
        (lines(LETTERS, ",") * 200 + 'a,"b\n' + lines(LETTERS, ",") * 200).encode(),
        found=("quotation mark may never be closed",),
    )
    yield Odd("three languages", lines([(w, w[::-1], w + w) for w in WORDS]).encode(), found=("3 columns",))
