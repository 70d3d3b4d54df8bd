"""A corpus of the size of Gigaword: how fast it is encoded, in how much memory, and how soon training starts again.

The text is made up: 3.8 million pairs of words drawn by Zipf's law, 31 to a source and 8 to a target in the mean, from
110,000 and 69,000 kinds. It is encoded as ``antiphon train`` does it with the recipe ``summarisation`` and
``data.cache``; then the same command is started again. Every part runs in a process of its own, whose peak resident
size is read from the system; pages of the mapped corpus that were read count in it.

python -m benchmarks.corpus_growth [--pairs N] [--seed S]     (2.5 GB of disk for 3.8 million pairs, in TMPDIR)
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent
PAIRS, DEV_PAIRS, SEED = 3_800_000, 2_000, 1
SIDES = {"source": (31, 110_000), "target": (8, 69_000)}
ROWS_AT_ONCE = 50_000


def measure(pairs=PAIRS, seed=SEED):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part, number in (("train", pairs), ("dev", DEV_PAIRS)):
            write_text(folder / f"{part}.tsv", number, seed)
        encoded, started, read = (child(part, folder) for part in ("encode", "start", "read"))
        corpus = next((folder / "cache").glob("*/corpus/train.arrow"))
        return [
            {
                "pairs": pairs,
                "seed": seed,
                "text_gb": (folder / "train.tsv").stat().st_size / 1e9,
                "kept": encoded["kept"],
                "count_s": encoded["count_s"],
                "count_pairs_per_s": pairs / encoded["count_s"],
                "encode_s": encoded["seconds"],
                "encode_pairs_per_s": pairs / encoded["seconds"],
                "encode_cpu_s": encoded["cpu_s"],
                "encode_peak_gib": encoded["peak_gib"],
                "corpus_gb": corpus.stat().st_size / 1e9,
                "first_step_after_s": started["seconds"],
                "first_step_peak_gib": started["peak_gib"],
                "plan_s": read["plan_s"],
                "batches_per_s": read["batches"] / read["seconds"],
                "epoch_of_batches_peak_gib": read["peak_gib"],
            }
        ]


def child(part, folder):
    """What a part, run in a process of its own, prints last; seconds are those since the process was started."""
    command = [sys.executable, "-m", "benchmarks.corpus_growth", "--part", part, "--folder", str(folder)]
    started = time.time()
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    found = json.loads(done.stdout.splitlines()[-1])
    return {"seconds": found["now"] - started, **found}


def encode(folder):
    """Reads, numbers and encodes the text, as the first training does."""
    from antiphon.training.data import prepare as preparation

    count = timed(preparation, "write_counted_corpus")
    started, cpu = time.perf_counter(), time.process_time()
    (folder / "prepared").mkdir()
    prepared = preparation.prepare(recipe(folder), preparation.RunFolder(folder / "prepared"), print)
    seconds = time.perf_counter() - started
    report(seconds=seconds, cpu_s=time.process_time() - cpu, count_s=sum(count), kept=len(prepared.train))


def start(folder):
    """Starts the training command and ends it after its first step."""
    from antiphon.cli import main
    from antiphon.training.progress_bar import ProgressBar

    def end(*_):
        report()
        os._exit(0)

    ProgressBar.on_update_end = end
    settings = [part for setting in data_settings(folder) for part in ("--set", setting)]
    sys.argv = ["antiphon", "train", "summarisation", *settings, "--out", str(folder / "run")]
    main()


def read(folder):
    """Plans an epoch and makes all its batches."""
    from antiphon.data.corpus import Corpus
    from antiphon.torch_free.batch import plan_batches

    corpus = Corpus(next((folder / "cache").glob("*/corpus/train.arrow")))
    settings, began = recipe(folder).train, time.perf_counter()
    plan = plan_batches(
        corpus.source_lengths,
        corpus.target_lengths,
        batch_size=settings.batch_size,
        max_cells=settings.max_batch_cells,
        order=np.random.default_rng(0),
    )
    planned = time.perf_counter()
    for numbers in plan:
        corpus.batch(numbers)
    report(plan_s=planned - began, batches=len(plan), seconds=time.perf_counter() - planned)


def report(**found):
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"now": time.time(), "peak_gib": peak, **found}), flush=True)


def timed(module, name):
    """The seconds that each call of a function of a module takes from here on."""
    function, seconds = getattr(module, name), []

    def wrapped(*arguments, **named):
        started = time.perf_counter()
        result = function(*arguments, **named)
        seconds.append(time.perf_counter() - started)
        return result

    setattr(module, name, wrapped)
    return seconds


def recipe(folder):
    from antiphon.recipe.recipe_file import load_recipe
    from antiphon.recipe.shipped_recipes import find_recipe

    return load_recipe(find_recipe("summarisation"), data_settings(folder))


def data_settings(folder):
    return [f"data.{part}={folder / part}.tsv" for part in ("train", "dev")] + [f"data.cache={folder / 'cache'}"]


def write_text(path, pairs, seed):
    draw = np.random.default_rng([seed, pairs])
    with path.open("w", encoding="utf-8") as file:
        for first in range(0, pairs, ROWS_AT_ONCE):
            sides = [sentences(draw, min(ROWS_AT_ONCE, pairs - first), *SIDES[side]) for side in SIDES]
            file.writelines(f"{source}\t{target}\n" for source, target in zip(*sides, strict=True))


def sentences(draw, number, mean, kinds):
    """Sentences of words by Zipf's law, with lengths spread around a mean."""
    lengths = np.clip(draw.gamma(9, mean / 9, number).round(), 1, 4 * mean).astype(int)
    shares = 1 / (np.arange(kinds) + 2.7)
    ranks = np.searchsorted(np.cumsum(shares / shares.sum()), draw.random(lengths.sum()))
    words = [spell(rank) for rank in range(kinds)]
    drawn = iter([words[rank] for rank in ranks.clip(max=kinds - 1).tolist()])
    return [" ".join(next(drawn) for _ in range(length)) for length in lengths.tolist()]


def spell(rank):
    """A word for each rank: the more frequent, the shorter."""
    letters = ""
    rest = rank + 1
    while rest:
        rest, letter = divmod(rest, 18)
        letters += "tnshrdlcmfwgpbvkjz"[letter] + "eaoiu"[rest % 5]
    return letters


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--part", choices=["encode", "start", "read"])
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    if arguments.part is None:
        print(json.dumps(measure(arguments.pairs, arguments.seed), indent=2))
    else:
        {"encode": encode, "start": start, "read": read}[arguments.part](arguments.folder)


if __name__ == "__main__":
    main()
