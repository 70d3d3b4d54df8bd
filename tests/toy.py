"""A toy language: every consonant is kept, every vowel doubled, and an ending that depends on the last letter added."""

import random
from pathlib import Path

VOWELS = "aeiou"


def inflect(word: str) -> str:
    doubled = "".join(letter * 2 if letter in VOWELS else letter for letter in word)
    return doubled + ("n" if word[-1] in VOWELS else "em")


def words(number: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return ["".join(draw.choice("aeioubdgkmst") for _ in range(draw.randint(2, 6))) for _ in range(number)]


def write_pairs(path: Path, number: int, seed: int = 0) -> Path:
    path.write_text("".join(f"{word}\t{inflect(word)}\n" for word in words(number, seed)), encoding="utf-8")
    return path
