"""Accuracy against the number of pairs, for the direct model and for the noisy channel, on a set with unpaired outputs.

python -m benchmarks.learning_curve --train T.tsv.gz --dev D.tsv.gz --test E.tsv.gz --lm runs/lm \\
  --full runs/direct runs/noisy --out runs/curve

``--lm`` is a trained language model of the outputs, ``--full`` are runs trained on all pairs, to which smaller ones are
compared. Direct and channel models are trained on random pairs, drawn once so that smaller samples are part of larger
ones; weights are tuned on dev; test is scored once. What ``--out`` holds already is not trained again.
"""

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path

from antiphon.torch_free.readers import read_lines
from benchmarks.curves import plot_curves

ROOT = Path(__file__).parent.parent
SIZES = {100: (240, 4), 300: (120, 8), 1000: (50, 8)}
"""Epochs and batch size for each number of pairs."""
DEV_PAIRS = 200
"""How many dev pairs choose the best epoch; weights are tuned on all of them."""
CHANNEL = ["data.swap=true", "model.encoder=unidirectional"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("train", "dev", "test", "lm", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--full", type=Path, nargs=2, required=True, metavar=("DIRECT", "NOISY"))
    given = parser.parse_args()
    pairs = list(read_lines(given.train))
    random.Random(1).shuffle(pairs)
    given.out.mkdir(parents=True, exist_ok=True)
    dev = list(read_lines(given.dev))
    random.Random(1).shuffle(dev)
    write(given.out / "dev.tsv", dev[:DEV_PAIRS])
    points = [measure(given, size, pairs) for size in SIZES]
    points.append(scores(len(pairs), *given.full, given.test))
    (given.out / "learning_curve.json").write_text(json.dumps(points, indent=2) + "\n")
    curves = {
        name: [(point["pairs"], point[key]) for point in points]
        for name, key in (("noisy channel", "noisy_channel"), ("direct", "direct"))
    }
    plot_curves(curves, "pairs", "accuracy on test (%)", given.out / "learning_curve.png", logarithmic="x")
    print(json.dumps(points, indent=2))


def measure(given, size, pairs):
    folder = given.out / str(size)
    folder.mkdir(exist_ok=True)
    write(folder / "train.tsv", pairs[:size])
    train(given, folder, "direct", size, [])
    train(given, folder, "channel", size, CHANNEL)
    run("combine", "--direct", folder / "direct", "--channel", folder / "channel", "--lm", given.lm,
        "--out", folder / "noisy", "--beam", 10, "--set", "search.proposals=20", "--force")  # fmt: skip
    run("tune", folder / "noisy", given.dev, "--metric", "accuracy", "--nbest", 15, "--rounds", 3, "--threads", 1)
    return scores(size, folder / "direct", folder / "noisy", given.test)


def scores(size, direct, noisy, test):
    return {
        "pairs": size,
        "direct": accuracy(direct, test),
        "noisy_channel": accuracy(noisy, test),
        "weights": json.loads((noisy / "metrics.json").read_text())["tuned"]["weights"],
    }


def train(given, folder, name, size, own):
    epochs, batch_size = SIZES[size]
    settings = [f"data.train={folder / 'train.tsv'}", f"data.dev={given.out / 'dev.tsv'}", "model.layers=1", *own]
    settings += [f"train.max_epochs={epochs}", f"train.batch_size={batch_size}", "train.final_learning_rate_ratio=0.05"]
    settings += ["train.dev_metric=perplexity", "train.patience=1000", "train.passes=1"]
    changes = [part for setting in settings for part in ("--set", setting)]
    run("train", "inflection", *changes, "--threads", 1, "--out", folder / name, "--resume")


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def accuracy(model, test):
    return json.loads(run("evaluate", model, test, "--json", "--beam", 10, "--threads", 1))["metrics"]["accuracy"][
        "value"
    ]


def run(*arguments):
    command = [sys.executable, "-m", "antiphon", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout


if __name__ == "__main__":
    main()
