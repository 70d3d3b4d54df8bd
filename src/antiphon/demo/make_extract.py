"""How the embedded extract was drawn from the CMU Pronouncing Dictionary; run it to draw it again.

python -m antiphon.demo.make_extract path/to/cmudict.dict
"""

import gzip
import random
import re
import sys
from pathlib import Path

SIZES = {"train": 30_000, "dev": 500, "test": 1_000}


def entries(dictionary: Path) -> list[tuple[str, str]]:
    """First pronunciations of words of plain letters, stress marks removed."""
    found = []
    for line in dictionary.read_text(encoding="utf-8").splitlines():
        word, _, phonemes = line.partition("#")[0].strip().partition(" ")
        if re.fullmatch(r"[a-z]{2,}", word):
            found.append((word, re.sub(r"\d", "", phonemes)))
    return found


def main() -> None:
    """Draws disjoint random samples and writes them beside this file."""
    drawn = random.Random(2026).sample(entries(Path(sys.argv[1])), sum(SIZES.values()))
    for name, size in SIZES.items():
        part, drawn = sorted(drawn[:size]), drawn[size:]
        text = "".join(f"{word}\t{phonemes}\n" for word, phonemes in part)
        path = Path(__file__).with_name(f"cmudict.{name}.tsv.gz")
        path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
