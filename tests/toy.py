"""A toy language: every consonant is kept, every vowel doubled, and an ending that depends on the last letter added."""

import random
from pathlib import Path

from antiphon.recipe.recipe_file import SHIPPED

VOWELS = "aeiou"
TOY = SHIPPED / "toy"
"""The pairs of this language that come with the package."""


def inflect(word: str) -> str:
    doubled = "".join(letter * 2 if letter in VOWELS else letter for letter in word)
    return doubled + ("n" if word[-1] in VOWELS else "em")


def words(number: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return ["".join(draw.choice("aeioubdgkmst") for _ in range(draw.randint(2, 6))) for _ in range(number)]


def write_pairs(path: Path, number: int, seed: int = 0) -> Path:
    path.write_text("".join(f"{word}\t{inflect(word)}\n" for word in words(number, seed)), encoding="utf-8")
    return path


def write_recipe(folder: Path, train: int, dev: int, sections: str = "") -> Path:
    """A recipe with pairs to learn and held-out pairs beside it, and further sections."""
    write_pairs(folder / "train.tsv", train, 1)
    write_pairs(folder / "dev.tsv", dev, 2)
    path = folder / "recipe.toml"
    path.write_text(f'[data]\ntrain = "train.tsv"\ndev = "dev.tsv"\n{sections}', encoding="utf-8")
    return path


KINDS_OF_WORDS = {
    "colour": ["red", "blue", "green", "grey"],
    "animal": ["cat", "dog", "horse", "owl"],
    "city": ["paris", "rome", "oslo", "cairo"],
}
FILLERS = ["the", "old", "house", "river", "was", "near", "big", "story", "door"]
QUESTION_HEADER = "question_id\tquestion\tcandidate_id\tsentence\tlabel\n"


def write_questions(path: Path, number: int, seed: int = 0) -> Path:
    """Questions such as "which colour ?", each with four candidates, of which one or two name such a thing."""
    draw = random.Random(seed)
    rows = []
    for question in range(number):
        wanted = draw.choice(list(KINDS_OF_WORDS))
        labels = draw.choice([[1, 0, 0, 0], [1, 1, 0, 0]])
        for place, label in enumerate(draw.sample(labels, len(labels))):
            others = [kind for kind in KINDS_OF_WORDS if kind != wanted]
            thing = draw.choice(KINDS_OF_WORDS[wanted if label else draw.choice(others)])
            words = [*draw.choices(FILLERS, k=draw.randint(1, 5)), thing, draw.choice(FILLERS)]
            rows.append(f"q{question}\twhich {wanted} ?\tq{question}-{place}\t{' '.join(words)}\t{label}\n")
    path.write_text(QUESTION_HEADER + "".join(rows), encoding="utf-8")
    return path


def write_vectors(path: Path, width: int = 8, seed: int = 0) -> Path:
    """Vectors in which all words of a kind lie close together."""
    draw = random.Random(seed)
    lines = []
    for place, (kind, words) in enumerate(KINDS_OF_WORDS.items()):
        for word in (kind, *words):
            lines.append((word, [float(axis == place) + draw.gauss(0, 0.1) for axis in range(width)]))
    lines += [(word, [draw.gauss(0, 0.3) for _ in range(width)]) for word in (*FILLERS, "which")]
    path.write_text("".join(f"{word} {' '.join(f'{x:.4f}' for x in xs)}\n" for word, xs in lines), encoding="utf-8")
    return path
