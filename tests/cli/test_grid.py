"""Grid search over any kind of model."""

import csv
import tomllib

import pytest

from antiphon.cli.grid import as_table
from antiphon.console import PlainConsole
from antiphon.settings_search.search import TrialResult
from tests.toy import TOY

RECIPE = """
[data]
train = "{toy}/train.tsv"
dev = "{toy}/dev.tsv"
test = "{toy}/dev.tsv"
[model]
hidden_size = 8
[train]
max_epochs = 1
passes = 1
dev_metric = "accuracy"
"""


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "toy.toml").write_text(RECIPE.format(toy=TOY))
    return tmp_path / "toy.toml"


def rows(out):
    with (out / "grid.tsv").open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_a_grid_trains_every_combination_and_leaves_the_best_recipe(antiphon, recipe, tmp_path):
    out = tmp_path / "grid"
    result = antiphon("grid", recipe, "--grid", "model.kind=suffix_rule,encoder_decoder", "--out", out)
    assert result.status == 0, result.err
    assert [row["model.kind"] for row in rows(out)] == ["suffix_rule", "encoder_decoder"]
    assert float(rows(out)[0]["dev_accuracy"]) > float(rows(out)[1]["dev_accuracy"])
    best = tomllib.loads((out / "best.toml").read_text())
    assert best["model"]["kind"] == "suffix_rule"
    assert best["data"]["test"].endswith("dev.tsv")
    weights = out / "model.kind=encoder_decoder" / "model.safetensors"
    assert "test" not in tomllib.loads((weights.parent / "recipe.toml").read_text())["data"]
    before = weights.stat().st_mtime_ns
    again = antiphon("grid", recipe, "--grid", "model.kind=encoder_decoder", "--out", out)
    assert again.status == 0, again.err
    assert [row["model.kind"] for row in rows(out)] == ["encoder_decoder"]
    assert weights.stat().st_mtime_ns == before


def test_a_combination_that_fails_does_not_stop_the_others(antiphon, recipe, tmp_path):
    grid = f"data.dev={tmp_path / 'nowhere.tsv'},{TOY / 'dev.tsv'}"
    result = antiphon("grid", recipe, "--set", "model.kind=suffix_rule", "--grid", grid, "--out", tmp_path / "grid")
    assert result.status == 2
    good, bad = rows(tmp_path / "grid")
    assert not good["problem"]
    assert "nowhere.tsv: no such file" in bad["problem"]
    assert "1 of 2 combinations failed" in result.err


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ("seed=1,2", "expected section.key=value,value..."),
        ("train.seed=", "expected section.key=value,value..."),
        ("train.sed=1,2", "--grid: train.sed: unknown key, did you mean seed?"),
        ("train.dev_metric=accuracy,perplexity", "cannot be compared"),
    ],
)
def test_a_grid_that_cannot_be_is_refused_before_anything_is_trained(antiphon, recipe, tmp_path, grid, message):
    result = antiphon("grid", recipe, "--grid", grid, "--out", tmp_path / "grid")
    assert result.status == 2
    assert message in result.err
    assert not (tmp_path / "grid").exists()


def test_the_table_of_a_grid_breaks_no_name(capsys):
    result = TrialResult(("model.hidden_size=16", "train.learning_rate=0.001"), 12.5, 2, 6.0)
    PlainConsole().print(as_table([result], "symbol_error_rate"))
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("model.hidden_size", "train.learning_rate", "symbol"))


def test_a_link_in_place_of_the_folder_of_a_trial_is_not_trained_in(antiphon, recipe, tmp_path):
    out, elsewhere = tmp_path / "grid", tmp_path / "elsewhere"
    out.mkdir()
    elsewhere.mkdir()
    (out / "train.seed=1").symlink_to(elsewhere)
    result = antiphon("grid", recipe, "--grid", "train.seed=1", "--out", out)
    assert result.status == 2
    assert "train.seed=1: a symbolic link" in result.err
    assert not list(elsewhere.iterdir())
