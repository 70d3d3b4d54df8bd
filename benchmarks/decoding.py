"""Sentences per second of greedy search, beam 10 and the noisy channel, beside the attention model's beam 10.

The models are those of the demo, phonemes to spelling, and an attention model of the same size; they train for two
minutes. All searches take turns on the same inputs, several rounds, and medians are compared.

Runs of your own, on a GPU or not:
python -m benchmarks.decoding SOURCES.txt --run transducer=RUN --run attention=RUN --run noisy_channel=RUN --device cuda
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from antiphon.api.model import load
from antiphon.demo import FOLDER
from antiphon.demo.lessons import WEIGHTS
from antiphon.torch_free.readers import read_pairs

ROOT = Path(__file__).parent.parent
WORDS, ROUNDS = 300, 3


def measure():
    with tempfile.TemporaryDirectory() as name:
        runs = train_models(Path(name))
        sources = [pair.target for pair in read_pairs(FOLDER / "cmudict.test.tsv.gz")][:WORDS]
        return compare(runs, sources, "cpu", ROUNDS)


def compare(runs, sources, device, rounds):
    models = {name: load(run, device=device, threads=1) for name, run in runs.items()}
    searches = {(name, beam): model for name, model in models.items() for beam in beams_of(name)}
    for (_, beam), model in searches.items():
        seconds(model, sources[:32], beam)
    times = {search: [] for search in searches}
    for _ in range(rounds):
        for (name, beam), model in searches.items():
            times[name, beam].append(seconds(model, sources, beam))
            print(name, beam, times[name, beam][-1], file=sys.stderr, flush=True)
    medians = {search: statistics.median(found) for search, found in times.items()}
    return [
        {
            "device": device,
            "inputs": len(sources),
            "model": name,
            "beam": beam,
            "seconds": found,
            "per_second": len(sources) / found,
            **{f"time_to_{other}_10": found / medians[other, 10] for other in ("transducer", "attention")},
        }
        for (name, beam), found in medians.items()
    ]


def beams_of(name):
    return (10,) if name == "noisy_channel" else (1, 10)


def seconds(model, sources, beam):
    started = time.perf_counter()
    model.predict(sources, beam=beam)
    return time.perf_counter() - started


def train_models(folder):
    for part in ("direct", "channel", "lm"):
        run("train", FOLDER / f"spelling-{part}.toml", "--threads", "1", "--out", folder / part)
    run("train", FOLDER / "spelling-direct.toml", "--threads", "1", "--out", folder / "attention", "--set",
        "model.kind=attention")  # fmt: skip
    run("combine", "--direct", folder / "direct", "--channel", folder / "channel", "--lm", folder / "lm",
        "--out", folder / "noisy", "--weights", ",".join(map(str, WEIGHTS["noisy"])))  # fmt: skip
    return {"transducer": folder / "direct", "attention": folder / "attention", "noisy_channel": folder / "noisy"}


def run(*arguments):
    subprocess.run([sys.executable, "-m", "antiphon", *map(str, arguments)], check=True, capture_output=True, cwd=ROOT)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--run", action="append", required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    lines = given.sources.read_text(encoding="utf-8").splitlines()
    found = compare(dict(run.split("=", 1) for run in given.run), lines, given.device, given.rounds)
    print(json.dumps(found, indent=2))
