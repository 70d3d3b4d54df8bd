"""Best dev score against time: a full grid, and as many trials drawn by TPE and pruned, of settings of a G2P model.

python -m benchmarks.search --out runs/search-benchmark [--plot docs/search.png]

The data are the first 3,000 pairs of the demo. Trials are trained one after the other with one thread. What ``--out``
holds already is not trained again. Epochs count the work whatever else the machine does; minutes are wall-clock time.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from matplotlib.figure import Figure
from optuna.study import get_all_study_names, load_study
from optuna.trial import TrialState

from antiphon.demo import __file__ as demo
from antiphon.torch_free.readers import read_lines
from benchmarks.__main__ import table

PAIRS = {"train": 3000, "dev": 500}
SETTINGS = ["model.hidden_size=64", "model.embedding_size=32", "train.max_epochs=8", "train.passes=1"]
SEARCHES = {
    "full grid": ["--grid", "train.learning_rate=0.001,0.003,0.01,0.03", "--grid", "model.dropout=0.0,0.2,0.4"],
    "TPE, pruned": ["--grid", "train.learning_rate=0.001..0.03:log", "--grid", "model.dropout=0.0..0.4",
                    "--sampler", "tpe", "--trials", "12", "--prune", "median", "--seed", "1"],
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name, number in PAIRS.items():
        lines = list(read_lines(Path(demo).parent / f"cmudict.{name}.tsv.gz"))[:number]
        (given.out / f"{name}.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    trials = {name: search(given.out, name, options) for name, options in SEARCHES.items()}
    goal = min(trial.value for trial in complete(trials["full grid"]))
    print("\n".join(table([row(name, found, goal) for name, found in trials.items()])))
    if given.plot:
        curves = {name: best_so_far(found) for name, found in trials.items()}
        plot_curves(curves, given.plot)


def search(out, name, options):
    """The trials of a search, in the order they ended."""
    folder = out / name.replace(", ", "-").replace(" ", "-")
    data = [f"data.{part}={out / part}.tsv" for part in PAIRS]
    settings = [word for setting in [*data, *SETTINGS] for word in ("--set", setting)]
    recipe = Path(demo).parent / "pronunciation.toml"
    command = ["grid", recipe, *settings, *options, "--device", "cpu", "--out", folder]
    subprocess.run([sys.executable, "-m", "antiphon", *map(str, command)], check=True)
    storage = f"sqlite:///{folder / 'search.db'}"
    study = load_study(study_name=get_all_study_names(storage)[0], storage=storage)
    return sorted(study.trials, key=lambda trial: trial.datetime_complete)


def complete(trials):
    return [trial for trial in trials if trial.state == TrialState.COMPLETE]


def row(name, trials, goal):
    """What a search cost, what it found, and what it cost until it was as good as the best of the grid."""
    reached = next(
        (number for number, trial in enumerate(trials) if trial in complete(trials) and trial.value <= goal), None
    )
    until = trials if reached is None else trials[: reached + 1]
    minutes = [(part[-1].datetime_complete - trials[0].datetime_start).total_seconds() / 60 for part in (trials, until)]
    return {
        "search": name,
        "trials": len(trials),
        "of them pruned": len(trials) - len(complete(trials)),
        "epochs": sum(map(epochs_of, trials)),
        "minutes": minutes[0],
        "best dev perplexity": min(trial.value for trial in complete(trials)),
        "epochs to the grid's best": "never" if reached is None else sum(map(epochs_of, until)),
        "minutes to it": "never" if reached is None else minutes[1],
    }  # fmt: skip


def best_so_far(trials):
    """Points of the epochs trained so far and the best complete trial."""
    points, epochs, best = [], 0, float("inf")
    for trial in trials:
        epochs += epochs_of(trial)
        if trial.state == TrialState.COMPLETE:
            best = min(best, trial.value)
            points.append((epochs, best))
    return points


def epochs_of(trial):
    return max(trial.intermediate_values, default=0)


def plot_curves(curves, path):
    """Draws the curve of each search into a file."""
    figure = Figure(figsize=(5.6, 3.8), layout="constrained")
    axes = figure.subplots()
    for name, points in curves.items():
        axes.plot(*zip(*points, strict=True), "o-", label=name, markersize=4)
    axes.set(xlabel="epochs trained", ylabel="best dev perplexity", yscale="log")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
