"""Real data that comes with the package, and what the demo shows on it.

The pairs are an extract of the CMU Pronouncing Dictionary (Carnegie Mellon University; licence beside this file).
"""

from collections.abc import Sequence
from pathlib import Path

from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from antiphon.data.readers import Pair

FOLDER = Path(__file__).parent
RECIPE = FOLDER / "recipe.toml"
WORDS_TO_SHOW = ("knight", "phoneme", "thorough", "quixotic", "antiphon")


def closest_pronunciations(known: Sequence[Pair], words: Sequence[str]) -> list[str]:
    """A simple baseline: every word is pronounced like the known word that is spelt most like it."""
    spellings = [pair.source for pair in known]
    found = (process.extractOne(word, spellings, scorer=Levenshtein.distance) for word in words)
    return [known[number].target for _, _, number in found]
