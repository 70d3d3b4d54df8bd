"""Decoding time of direct + channel + language model against the direct model's own beam, on one core.

The models are those of the demo, phonemes to spelling, trained for two minutes. Both searches keep 10 hypotheses per
cell; the combination rescores 20 proposals. They run in turn on the same words, several times; medians are compared.

Runs of your own, on a GPU or not: python -m benchmarks.noisy_channel_decoding DIRECT NOISY SOURCES.txt --device cuda
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from antiphon.api import load
from antiphon.data.readers import read_pairs
from antiphon.demo import FOLDER
from antiphon.demo.spelling import WEIGHTS

ROOT = Path(__file__).parent.parent
WORDS, ROUNDS = 300, 5


def measure():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train_parts(folder)
        run("combine", "--direct", folder / "direct", "--channel", folder / "channel", "--lm", folder / "lm",
            "--out", folder / "noisy", "--weights", ",".join(map(str, WEIGHTS["noisy"])))  # fmt: skip
        sources = [pair.target for pair in read_pairs(FOLDER / "cmudict.test.tsv.gz")][:WORDS]
        return [compare(folder / "direct", folder / "noisy", sources, "cpu")]


def compare(direct_run, noisy_run, sources, device):
    direct, noisy = (load(run, device=device, threads=1) for run in (direct_run, noisy_run))
    seconds(direct, sources[:50]), seconds(noisy, sources[:50])
    rounds = [(seconds(direct, sources), seconds(noisy, sources)) for _ in range(ROUNDS)]
    direct_s, noisy_s = (statistics.median(times) for times in zip(*rounds, strict=True))
    return {
        "device": device,
        "inputs": len(sources),
        "beam": 10,
        "proposals": noisy.recipe.search.proposals,
        "direct_s": direct_s,
        "noisy_channel_s": noisy_s,
        "time_ratio": noisy_s / direct_s,
        "direct_per_second": len(sources) / direct_s,
        "noisy_channel_per_second": len(sources) / noisy_s,
    }


def seconds(model, sources):
    started = time.perf_counter()
    model.predict(sources, beam=10)
    return time.perf_counter() - started


def train_parts(folder):
    for part in ("direct", "channel", "lm"):
        run("train", FOLDER / f"spelling-{part}.toml", "--threads", "1", "--out", folder / part)


def run(*arguments):
    subprocess.run([sys.executable, "-m", "antiphon", *map(str, arguments)], check=True, capture_output=True, cwd=ROOT)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("direct", type=Path)
    parser.add_argument("noisy", type=Path)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    lines = given.sources.read_text(encoding="utf-8").splitlines()
    print(json.dumps(compare(given.direct, given.noisy, lines, given.device), indent=2))
