"""A search with drawn values and pruning, and trainings that fail."""

import csv
import sys
import tomllib

import pytest

from tests.toy import write_recipe

RECIPE = """
[model]
hidden_size = 6
[train]
max_epochs = 2
passes = 1
dev_metric = "perplexity"
"""
COUNTING = ["--set", "model.kind=suffix_rule", "--set", "train.dev_metric=accuracy"]


@pytest.fixture
def recipe(tmp_path):
    return write_recipe(tmp_path, 30, 10, RECIPE)


@pytest.fixture
def grid(antiphon, recipe, tmp_path):
    """Gives a search in the folder ``out``."""
    return lambda *arguments: antiphon("grid", recipe, "--out", tmp_path / "out", *arguments)


def rows(out):
    with (out / "grid.tsv").open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_values_are_drawn_from_lists_and_ranges_and_the_best_recipe_is_left(grid, tmp_path, sampler):
    spaces = ["--grid", "data.min_count=1..3", "--grid", "data.lowercase=true,false"]
    result = grid(*COUNTING, *spaces, "--sampler", sampler, "--trials", "6")
    assert result.status == 0, result.err
    found = rows(tmp_path / "out")
    assert 2 <= len(found) <= 6  # a combination that is drawn twice has one row
    assert {row["data.min_count"] for row in found} <= {"1", "2", "3"}
    assert {row["data.lowercase"] for row in found} == {"true", "false"}
    best = tomllib.loads((tmp_path / "out" / "best.toml").read_text())
    assert str(best["data"]["min_count"]) == found[0]["data.min_count"]
    assert float(found[0]["dev_accuracy"]) >= float(found[-1]["dev_accuracy"])


def test_a_trial_that_falls_behind_is_pruned_and_stays_so(grid, tmp_path):
    axis = "train.learning_rate=0.05,0.04,0.03,0.02,1e-6"
    result = grid("--grid", axis, "--prune", "median")
    assert result.status == 0, result.err
    *complete, pruned = rows(tmp_path / "out")
    assert [row["state"] for row in complete] == ["complete"] * 4
    assert (pruned["train.learning_rate"], pruned["state"], pruned["epochs"]) == ("1e-6", "pruned", "1")
    assert "train.learning_rate=1e-6  pruned in epoch 1, dev perplexity" in result.err
    run = tmp_path / "out" / "train.learning_rate=1e-6"
    assert (run / "last.ckpt").exists()
    assert not (run / "metrics.json").exists()
    before = contents(run)
    assert grid("--grid", axis, "--prune", "median").out == result.out
    assert contents(run) == before


def test_values_that_make_no_recipe_together_fail_one_trial(grid, tmp_path):
    settings = ["model.kind=transformer", "model.layers=1", "train.max_epochs=1"]
    axes = [
        "--grid",
        "model.hidden_size=8,9",
        "--grid",
        "model.heads=1,2",
        "--sampler",
        "random",
        "--trials",
        "3",
        "--seed",
        "2",
    ]
    result = grid(*(word for setting in settings for word in ("--set", setting)), *axes)
    states = {(row["model.hidden_size"], row["model.heads"]): row["state"] for row in rows(tmp_path / "out")}
    assert states.pop(("9", "2")) == "failed"
    assert set(states.values()) == {"complete"}
    assert result.status == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--grid", "data.min_count=1..3"], "a range, expected a list of values, or --sampler random or tpe"),
        (["--grid", "data.min_count=1,2", "--trials", "3"], "--trials 3: a grid has all combinations"),
        (["--grid", "data.min_count=3..1", "--sampler", "tpe"], "not a range"),
    ],
)
def test_a_search_that_cannot_be_is_refused_before_anything_is_written(grid, tmp_path, options, message):
    result = grid(*COUNTING, *options)
    assert result.status == 2
    assert message in result.err
    assert not (tmp_path / "out").exists()


def test_without_optuna_a_search_says_what_to_install(grid, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    result = grid("--grid", "data.min_count=1,2")
    assert result.status == 2
    assert result.err.endswith("expected it installed: pip install -e '.[search]' in a checkout of Antiphon\n")
    assert not (tmp_path / "out").exists()


def test_another_search_in_the_folder_is_refused_in_a_sentence(grid, tmp_path):
    assert grid(*COUNTING, "--grid", "data.min_count=1,2").status == 0
    before = contents(tmp_path / "out")
    result = grid(*COUNTING, "--grid", "data.min_count=1,2", "--set", "data.lowercase=true")
    assert (result.status, result.err) == (
        2,
        f"antiphon: {tmp_path / 'out'}: searched with data.lowercase = not set, now true; expected the same search; "
        "choose another --out\n",
    )
    assert contents(tmp_path / "out") == before
