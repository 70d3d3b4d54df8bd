"""Lines per second of ``antiphon predict`` with one process and with two.

Two workers are two processes of one command (``--processes 2``), or two shards started at once (``--shard``). Start-up
is part of the time. The toy run searches; suffix rules show what reading and writing cost.

python -m benchmarks shards
"""

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from antiphon.recipe.recipe_file import find_recipe, load_recipe
from antiphon.training.fit import train

LINES = {"transducer": 20_480, "suffix_rule": 204_800}
PART_LINES = 2048
"""Both kinds make an even number of parts, so that two shards have the same work."""
LETTERS = "aeioubdgkmst"


def measure():
    with tempfile.TemporaryDirectory() as folder:
        return [row for kind, lines in LINES.items() for row in measure_kind(Path(folder), kind, lines)]


def measure_kind(folder, kind, lines):
    run, file = folder / kind, folder / f"{kind}.txt"
    train(load_recipe(find_recipe("toy"), [f"model.kind={kind}"]), run, device="cpu", threads=1)
    write_words(file, lines)
    plain = ["predict", run, file, "--threads", "1"]
    parts = [*plain, "--part-lines", PART_LINES]
    shards = [[*parts, "--shard", f"{index}/2", "--out", folder / f"{kind}-parts"] for index in (1, 2)]
    for workers, commands in (
        ("1 process", [plain]),
        ("--processes 2", [[*plain, "--processes", "2"]]),
        ("1 shard", [[*parts, "--out", folder / f"{kind}-part"]]),
        ("2 shards", shards),
    ):
        seconds = run_together(commands)
        yield {
            "kind": kind,
            "lines": lines,
            "workers": workers,
            "seconds": round(seconds, 1),
            "lines per second": round(lines / seconds),
        }


def write_words(path, lines):
    draw = random.Random(1)
    with path.open("w") as file:
        file.writelines("".join(draw.choices(LETTERS, k=draw.randint(2, 8))) + "\n" for _ in range(lines))


def run_together(commands):
    """Seconds until all commands have ended."""
    started = time.perf_counter()
    processes = [
        subprocess.Popen([sys.executable, "-m", "antiphon", *map(str, command)], stdout=subprocess.DEVNULL)
        for command in commands
    ]
    assert all(process.wait() == 0 for process in processes)
    return time.perf_counter() - started
