"""Creates the extracts of the CMU Pronouncing Dictionary and SCOWL that the demo learns from; run it to recreate them.

python benchmarks/make_demo_data.py path/to/cmudict.dict path/to/american-english
"""

import gzip
import random
import re
import sys
from pathlib import Path

from antiphon.demo import FOLDER

SIZES = {"train": 30_000, "dev": 500, "test": 1_000}
FEW = 6
"""Every sixth pair is one of the few that the spelling models learn from."""


def entries(dictionary: Path) -> list[tuple[str, str]]:
    """First pronunciations of words of plain letters, stress marks removed."""
    found = []
    for line in dictionary.read_text(encoding="utf-8").splitlines():
        word, _, phonemes = line.partition("#")[0].strip().partition(" ")
        if re.fullmatch(r"[a-z]{2,}", word):
            found.append((word, re.sub(r"\d", "", phonemes)))
    return found


def draw_pairs(dictionary: Path) -> dict[str, list[tuple[str, str]]]:
    """Disjoint random samples."""
    drawn = random.Random(2026).sample(entries(dictionary), sum(SIZES.values()))
    parts = {}
    for name, size in SIZES.items():
        parts[name], drawn = sorted(drawn[:size]), drawn[size:]
    parts["few"] = parts["train"][::FEW]
    return parts


def plain_words(word_list: Path) -> set[str]:
    """Words of plain letters, in lower case."""
    return {
        word.lower()
        for word in word_list.read_text(encoding="utf-8").splitlines()
        if re.fullmatch(r"[A-Za-z]{2,}", word)
    }


def write(name: str, lines: list[str]) -> None:
    """Writes a file of the demo, the same bytes every time."""
    text = "".join(f"{line}\n" for line in lines)
    (FOLDER / name).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def main() -> None:
    """Draws the pairs, and removes the held-out words from the word list."""
    parts = draw_pairs(Path(sys.argv[1]))
    for name, pairs in parts.items():
        write(f"cmudict.{name}.tsv.gz", [f"{word}\t{phonemes}" for word, phonemes in pairs])
    held_out = {word for name in ("dev", "test") for word, _ in parts[name]}
    write("scowl.words.txt.gz", sorted(plain_words(Path(sys.argv[2])) - held_out))


if __name__ == "__main__":
    main()
