"""Recipes that come with the package, named without a path."""

import tomllib

import pytest

from antiphon.recipe.recipe_file import SHIPPED, find_recipe, load_recipe, recipe_names


def test_recipes_lists_every_recipe_with_its_task_and_kind(antiphon, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    listed = antiphon("recipes").out
    assert set(recipe_names()) >= {"g2p", "inflection", "toy", "answer-selection"}
    assert all(name in listed for name in recipe_names())
    assert "Grapheme to phoneme" in listed
    assert all(len(line) <= 80 for line in listed.splitlines())


def test_recipes_prints_a_recipe_as_it_is(antiphon):
    assert antiphon("recipes", "g2p").out == (SHIPPED / "g2p.toml").read_text()


def test_a_copied_recipe_finds_its_data(antiphon, tmp_path):
    written = antiphon("recipes", "toy", "--copy", tmp_path).out.splitlines()
    assert sorted(written) == sorted(str(tmp_path / name) for name in ("toy.toml", "toy/train.tsv", "toy/dev.tsv"))
    assert load_recipe(tmp_path / "toy.toml").data.train == tmp_path / "toy/train.tsv"
    again = antiphon("recipes", "toy", "--copy", tmp_path)
    assert again.status == 2
    assert "exists already" in again.err


@pytest.mark.parametrize("arguments", [("train", "gp2"), ("grid", "gp2", "--grid", "train.seed=1"), ("recipes", "gp2")])
def test_a_name_that_does_not_exist_is_answered_with_the_nearest(antiphon, arguments):
    result = antiphon(*arguments)
    assert result.status == 2
    assert "gp2: no such recipe" in result.err
    assert "g2p" in result.err


def test_a_path_is_still_a_recipe(tmp_path):
    own = tmp_path / "g2p.toml"
    own.write_text("[train]\nseed = 7\n")
    assert find_recipe(str(own)) == own
    assert find_recipe("g2p") == SHIPPED / "g2p.toml"


def test_a_grid_takes_names(antiphon, tmp_path):
    grid = ("--set", "model.kind=suffix_rule", "--grid", "train.seed=1", "--out", tmp_path / "grid")
    result = antiphon("grid", "toy", *grid)
    assert result.status == 0, result.err
    best = tomllib.loads((tmp_path / "grid/best.toml").read_text())
    assert best["data"]["train"] == str(SHIPPED / "toy/train.tsv")


def test_a_folder_whose_name_is_no_text_is_printed_with_escapes(antiphon, tmp_path):
    copied = antiphon("recipes", "toy", "--copy", tmp_path / "\udcff")
    assert copied.status == 0
    assert "\\udcff" in copied.out
