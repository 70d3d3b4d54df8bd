"""Letters that training never saw are copied from the input, whatever writes the output."""

import csv
import random

import pytest

import antiphon as package
from antiphon.runs.combined_runs import combine_runs, ensemble_runs
from tests.shared_folders import filled_once, run_command

RECIPE = """
[model]
encoder = "unidirectional"
hidden_size = 24
dropout = 0.0
[train]
learning_rate = 0.01
batch_size = 16
max_epochs = 6
final_learning_rate_ratio = 0.05
passes = 4
dev_metric = "accuracy"
[search]
beam = 4
"""
UNSEEN = ["daxe", "quma", "ßobi", "kiñ", "xexa", "tæsð"]


def write_copies(path, number, seed, *more):
    draw = random.Random(seed)
    lines = [*more] + ["".join(draw.choice("abdegikmostu") for _ in range(draw.randint(2, 6))) for _ in range(number)]
    path.write_text("".join(f"{word}\t{word}n\n" for word in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two models that copy words and add an ending, and a channel that takes it off."""
    return filled_once(tmp_path_factory, "copying", train_copying)


def train_copying(folder):
    write_copies(folder / "train.tsv", 300, 1)
    write_copies(folder / "dev.tsv", 40, 2, *UNSEEN)
    (folder / "recipe.toml").write_text(RECIPE + f'[data]\ntrain = "{folder}/train.tsv"\ndev = "{folder}/dev.tsv"\n')
    for name, setting in (("one", "train.seed=1"), ("two", "train.seed=2"), ("channel", "data.swap=true")):
        run_command("train", folder / "recipe.toml", "--set", setting, "--out", folder / name)


def predicted(model):
    return [prediction.text for prediction in model.predict(UNSEEN)]


def test_predict_writes_the_unseen_letters_of_the_input(runs):
    model = package.load(runs / "one")
    assert model.recipe.model.copy_unknown
    assert predicted(model) == [f"{word}n" for word in UNSEEN]


@pytest.mark.parametrize("policy", ["greedy", "beam"])
def test_a_stream_writes_the_unseen_letters_of_the_input(runs, policy):
    model = package.load(runs / "one")
    for word in UNSEEN:
        stream = model.stream(policy=policy)
        written = [token for letter in word for token in stream.read(letter)] + stream.finish()
        assert "".join(written) == f"{word}n"


def test_an_ensemble_writes_the_unseen_letters_of_the_input(runs, tmp_path):
    ensemble_runs([runs / "one", runs / "two"], tmp_path / "both", force=False)
    assert predicted(package.load(tmp_path / "both")) == [f"{word}n" for word in UNSEEN]


def test_a_noisy_channel_writes_the_unseen_letters_of_the_input(runs, tmp_path):
    combine_runs(runs / "one", runs / "channel", None, tmp_path / "combined", {}, force=False)
    model = package.load(tmp_path / "combined")
    assert predicted(model) == [f"{word}n" for word in UNSEEN]
    stream = model.stream()
    assert "".join([token for letter in "daxe" for token in stream.read(letter)] + stream.finish()) == "daxen"


def test_what_validation_measures_is_what_evaluate_says_of_unseen_letters(runs):
    with (runs / "one" / "log.csv").open() as log:
        measured = [float(row["dev_accuracy"]) for row in csv.DictReader(log)]
    evaluation = package.load(runs / "one").evaluate(
        [tuple(line.split("\t")) for line in (runs / "dev.tsv").read_text(encoding="utf-8").splitlines()]
    )
    assert evaluation.unknown_source >= len(UNSEEN)
    accuracy = evaluation.metrics["accuracy"].value
    assert any(accuracy == pytest.approx(each) for each in measured)
    assert accuracy > 90
