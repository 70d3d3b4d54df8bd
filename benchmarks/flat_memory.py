"""Resident memory of one process after 1,000 and after 100,000 predictions of the toy model: it does not grow.

python -m benchmarks flat_memory

With a run trained elsewhere: python -m benchmarks.flat_memory RUN [PREDICTIONS]
"""

import random
import sys
import tempfile
from pathlib import Path

import antiphon
from antiphon.recipe.recipe_file import find_recipe, load_recipe
from antiphon.training.fit import train

LETTERS = "aeioubdgkmst"
COUNTS = 1_000, 10_000, 100_000


def measure():
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "toy"
        train(load_recipe(find_recipe("toy")), run, device="cpu", threads=1)
        return list(memory_of(run, COUNTS))


def memory_of(run, counts):
    """Resident MiB after so many predictions, drawn words of two to twelve letters, a few of them blank or unknown."""
    model = antiphon.load(run, device="cpu", threads=1)
    predictions = model.predict_lazily(draw_words())
    done = 0
    for count in counts:
        for _ in range(count - done):
            next(predictions)
        done = count
        yield {"predictions": count, "resident MiB": round(resident_bytes() / 2**20, 1)}


def draw_words():
    draw = random.Random(1)
    while True:
        letters = draw.choices(LETTERS, k=draw.randint(2, 12))
        yield draw.choices(["".join(letters), "", "".join(letters).upper()], weights=[98, 1, 1])[0]


def resident_bytes():
    """What is in memory now, not the most that ever was."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


if __name__ == "__main__":
    number = int(sys.argv[2]) if len(sys.argv) > 2 else COUNTS[-1]
    for row in memory_of(Path(sys.argv[1]), (1_000, number)):
        print(row)
