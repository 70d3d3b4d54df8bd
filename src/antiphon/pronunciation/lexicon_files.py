"""Pronunciation lexica in the formats of other programs: read, recognised by their lines, and written.

cmudict   ``WORD  P P``, further readings as ``WORD(2)  P P``, comments after ``;;;`` or ``#``
wikipron  ``word<TAB>p p``
mfa       ``word<TAB>0.9<TAB>p p``, also with three more numbers before the phonemes: Montreal Forced Aligner
kaldi     ``word p p``: ``lexicon.txt`` of Kaldi and of sherpa-onnx
kaldi-p   ``word 0.9 p p``: ``lexiconp.txt`` of Kaldi
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from antiphon.exceptions import InputError
from antiphon.terminal import one_line
from antiphon.torch_free.readers import read_lines

_VARIANT = re.compile(r"\(\d+\)$")
_NUMBER = re.compile(r"\d*\.\d+(?:e-?\d+)?|\d+\.?(?:\d*e-?\d+)?")
_FEW = 1000
"""Lines by which a format is recognised."""
_LEAST_PROBABILITY = 0.0001
"""What is written for a smaller probability: a word that has none is no entry."""


class Entry(NamedTuple):
    """A reading of a word; ``numbers`` are what its format has between both: a probability, and those of silence."""

    word: str
    phonemes: tuple[str, ...]
    numbers: tuple[float, ...] = ()


class LexiconFormat(NamedTuple):
    """A format: what stands after a word, how many numbers it can have, and whether further readings are counted."""

    name: str
    separator: str
    numbers: tuple[int, ...] = (0,)
    counts_readings: bool = False

    def parse(self, line: str, where: str) -> Entry | None:
        """The entry on a line; None for a comment or an empty line."""
        if self.counts_readings:
            line = "" if line.startswith(";;;") else line.partition(" #")[0]
        if not line.strip():
            return None
        word, *rest = self._cells(line)
        count = next((index for index, cell in enumerate(rest[:-1]) if not _NUMBER.fullmatch(cell)), len(rest[:-1]))
        count = count if max(self.numbers) else 0
        phonemes = " ".join(rest[count:]).split()
        if not word.strip() or not phonemes or count not in self.numbers:
            raise InputError(f"{where}: {one_line(line, 60)!r}, expected {self.example} as in a lexicon of {self.name}")
        word = _VARIANT.sub("", word) if self.counts_readings else word
        return Entry(word.strip(), tuple(phonemes), tuple(map(float, rest[:count])))

    def _cells(self, line: str) -> list[str]:
        """The word, and what follows it."""
        return line.rstrip("\t").split("\t") if self.separator == "\t" else line.split()

    def can_hold(self, word: str) -> bool:
        """Whether a word ends where its separator begins: one with spaces needs tabs."""
        return self.separator == "\t" or len(word.split()) == 1

    @property
    def example(self) -> str:
        """What a line looks like."""
        number = f"0.9{self.separator}" if max(self.numbers) else ""
        return f"word{self.separator}{number}p p".replace("\t", "<TAB>")

    def write(self, entries: Iterable[Entry]) -> Iterator[str]:
        """The lines of entries; those of a word follow each other."""
        counts: dict[str, int] = {}
        for word, phonemes, numbers in entries:
            counts[word] = count = counts.get(word, 0) + 1
            name = f"{word}({count})" if self.counts_readings and count > 1 else word
            shown = [f"{max(number, _LEAST_PROBABILITY):.4g}" for number in numbers]
            yield self.separator.join([name, *shown, " ".join(phonemes)])


FORMATS = {
    each.name: each
    for each in (
        LexiconFormat("cmudict", "  ", counts_readings=True),
        LexiconFormat("wikipron", "\t"),
        LexiconFormat("mfa", "\t", numbers=(0, 1, 4)),
        LexiconFormat("kaldi", " "),
        LexiconFormat("kaldi-p", " ", numbers=(1,)),
    )
}
SAME = {"sherpa-onnx": "kaldi"}
"""Other names of formats."""


class PronunciationLexicon(NamedTuple):
    """The entries of a file in their order, and its format."""

    format: LexiconFormat
    entries: Sequence[Entry]

    @property
    def symbols(self) -> frozenset[str]:
        """All phonemes."""
        return frozenset(phoneme for entry in self.entries for phoneme in entry.phonemes)


def format_named(name: str) -> LexiconFormat:
    """The format of a name."""
    found = FORMATS.get(SAME.get(name, name))
    if found is None:
        raise InputError(f"format {name!r}: unknown, expected one of {', '.join([*FORMATS, *SAME])}")
    return found


def read_lexicon(path: Path, name: str | None = None) -> PronunciationLexicon:
    """The lexicon in a file, in a format that is given by name or recognised."""
    lines = list(read_lines(path))  # once, since it may be a pipe
    found = format_named(name) if name else recognise(lines[:_FEW])
    entries = [
        entry
        for number, line in enumerate(lines, 1)
        if (entry := found.parse(line.removeprefix("\ufeff"), f"{path}:{number}"))
    ]
    if not entries:
        raise InputError(f"{path}: no entry, expected lines such as {found.example}")
    if all(len(entry.phonemes) == 1 for entry in entries):
        raise InputError(f"{path}: one symbol for every word, expected phonemes between spaces")
    return PronunciationLexicon(found, entries)


def recognise(lines: Iterable[str]) -> LexiconFormat:
    """The format of lines: by tabs, by numbers after the word, and by readings that are counted."""
    filled = [line.removeprefix("\ufeff") for line in lines if line.strip()]
    kept = [line for line in filled if not line.startswith(";;;")]
    has_tabs = bool(kept) and all("\t" in line for line in kept)
    rows = [line.split("\t" if has_tabs else None) for line in kept]
    with_numbers = sum(len(row) > 2 and _NUMBER.fullmatch(row[1]) is not None for row in rows)
    if has_tabs:
        return FORMATS["mfa" if 2 * with_numbers > len(rows) else "wikipron"]
    if rows and with_numbers == len(rows):
        return FORMATS["kaldi-p"]
    is_counted = len(kept) < len(filled) or any(_VARIANT.search(row[0]) for row in rows)
    has_wide_gaps = bool(kept) and all("  " in line for line in kept)
    return FORMATS["cmudict" if is_counted or has_wide_gaps else "kaldi"]
