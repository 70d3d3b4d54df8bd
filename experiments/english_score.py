"""Words wrong on the held-out tenth, with and without stress, of an exported model or of a file of outputs.

python -m experiments.english_score FOLDER/test.tsv MODEL [MODEL ...]

A word is right if its output is one of its readings in the dictionary. A model is a folder that ``antiphon export``
wrote, the name of a shipped one, or a file of lines ``word<TAB>phonemes``, such as Phonetisaurus writes.
"""

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from antiphon import lite


def rows(path: Path) -> Iterator[tuple[str, str]]:
    """The words and phonemes of a file."""
    for line in path.read_text(encoding="utf-8").splitlines():
        word, _, phonemes = line.partition("\t")
        yield word, phonemes


def references(path: Path) -> dict[str, set[str]]:
    """The readings of every held-out word."""
    found: dict[str, set[str]] = {}
    for word, phonemes in rows(path):
        found.setdefault(word, set()).add(phonemes)
    return found


def outputs(model: str, words: list[str]) -> dict[str, str]:
    """What a model writes for each word, or what a file of outputs has."""
    if Path(model).is_file():
        return dict(rows(Path(model)))
    predictions = lite.load(model).predict(words, align=False)
    return {word: each.text or "" for word, each in zip(words, predictions, strict=True)}


def without_stress(phonemes: str) -> str:
    """Phonemes without the digits of stress."""
    return re.sub(r"\d", "", phonemes)


def score(found: dict[str, str], wanted: dict[str, set[str]]) -> tuple[float, float]:
    """The percentage of words that are wrong, with and without stress."""
    with_stress = sum(found.get(word, "") not in readings for word, readings in wanted.items())
    without = sum(
        without_stress(found.get(word, "")) not in set(map(without_stress, readings))
        for word, readings in wanted.items()
    )
    return 100 * with_stress / len(wanted), 100 * without / len(wanted)


def main() -> None:
    """Prints a row for each model."""
    test, *models = sys.argv[1:]
    wanted = references(Path(test))
    print(f"{len(wanted):,} words; wrong in percent with stress, without stress; words per second")
    for model in models:
        started = time.perf_counter()
        found = outputs(model, list(wanted))
        speed = len(wanted) / (time.perf_counter() - started)
        print("{:.2f}\t{:.2f}\t{:.0f}\t{}".format(*score(found, wanted), speed, model))


if __name__ == "__main__":
    main()
