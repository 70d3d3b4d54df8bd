"""Decoding time of direct + channel + language model against the direct model's own beam, on one core.

Small models are trained for a minute on an extract of the embedded data, phonemes to spelling, so that the search
prunes as it does in use. Both searches keep 10 hypotheses per cell; the combination rescores 20 proposals. They run in
turn on the same words, several times; the medians are compared.

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

ROOT = Path(__file__).parent.parent
WORDS, ROUNDS = 300, 5


def measure():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train_parts(folder)
        run("combine", "--direct", folder / "direct", "--channel", folder / "channel", "--lm", folder / "lm",
            "--out", folder / "noisy", "--proposals", "20", "--beam", "10")  # fmt: skip
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
    for part, lines in (("train", 3000), ("dev", 100)):
        pairs = list(read_pairs(FOLDER / f"cmudict.{part}.tsv.gz"))[:: 10 if part == "train" else 1][:lines]
        (folder / f"{part}.tsv").write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in pairs))
    own = {
        "direct": ["data.swap=true", "train.max_epochs=6"],
        "channel": ["model.encoder=unidirectional", "train.max_epochs=6"],
        "lm": ["model.kind=language_model", "data.swap=true", f"data.vocab_from={folder}/direct", "train.max_epochs=3"],
    }
    both = [f"data.train={folder}/train.tsv", f"data.dev={folder}/dev.tsv", "model.layers=1", "model.dropout=0.1"]
    both += ["train.average=0", "train.learning_rate=0.004", "train.dev_metric=perplexity"]
    for name, settings in own.items():
        changes = [part for setting in both + settings for part in ("--set", setting)]
        run("train", "recipes/g2p.toml", *changes, "--threads", "1", "--out", folder / name)


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
