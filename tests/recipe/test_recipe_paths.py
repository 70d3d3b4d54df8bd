"""Paths of data: absolute in use, relative in run folders, and gone from runs that travel alone."""

import tomllib
from pathlib import Path

import pytest

from antiphon.recipe.recipe_file import make_recipe, paths_in_run, save_recipe, with_moved_paths
from antiphon.recipe.schema import Recipe


def saved(recipe, run):
    """The table of a recipe that is saved in a run folder."""
    run.mkdir(parents=True, exist_ok=True)
    save_recipe(recipe, run / "recipe.toml", run)
    return tomllib.loads((run / "recipe.toml").read_text())


def read(run):
    table = tomllib.loads((run / "recipe.toml").read_text())
    paths_in_run(table, run)
    return Recipe.model_validate(table)


@pytest.mark.parametrize(
    "data",
    [
        {"train": "train.tsv", "dev": ["dev.de", "dev.en"], "unpaired": ["a.txt", "b.txt"]},
        {"train": "../other/../train.tsv", "vocab_from": "/elsewhere/run"},
        {},
    ],
)
def test_paths_are_relative_in_a_run_and_the_same_when_it_is_read(tmp_path, data):
    kind = {"kind": "language_model"} if "unpaired" in data else {}
    recipe = make_recipe({"data": data, "model": kind}, folder=tmp_path / "project")
    table = saved(recipe, tmp_path / "project/runs/x")
    assert '"/' not in (tmp_path / "project/runs/x/recipe.toml").read_text()
    assert read(tmp_path / "project/runs/x").data == recipe.data
    if data.get("train") == "train.tsv":
        assert table["data"]["train"] == "../../train.tsv"


def test_a_project_that_is_moved_as_a_whole_keeps_its_paths(tmp_path):
    recipe = make_recipe({"data": {"train": "train.tsv"}}, folder=tmp_path / "project")
    saved(recipe, tmp_path / "project/runs/x")
    (tmp_path / "project").rename(tmp_path / "moved")
    assert read(tmp_path / "moved/runs/x").data.train == tmp_path / "moved/train.tsv"


def test_a_run_folder_that_is_reached_by_a_link_has_the_same_paths(tmp_path):
    recipe = make_recipe({"data": {"train": "train.tsv"}}, folder=tmp_path)
    saved(recipe, tmp_path / "deep/down/run")
    (tmp_path / "link").symlink_to(tmp_path / "deep/down/run")
    assert read(tmp_path / "link").data.train == tmp_path / "train.tsv"


def test_a_path_that_goes_up_from_a_linked_folder_is_followed_as_the_file_system_does(tmp_path):
    (tmp_path / "real/recipes").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real/recipes")
    recipe = make_recipe({"data": {"train": "../train.tsv"}}, folder=tmp_path / "link")
    assert recipe.data.train == tmp_path / "real/train.tsv"


def test_moved_data_are_found_by_the_paths_of_the_command(tmp_path):
    (tmp_path / "there.tsv").touch()
    gone = {"train": "/gone/train.tsv", "dev": ["/gone/a", "/gone/b"], "test": str(tmp_path / "there.tsv")}
    asked = {"train": "/new/train.tsv", "dev": ["/new/a", "/new/other"], "test": "/new/there.tsv"}
    data = with_moved_paths(make_recipe({"data": gone}), make_recipe({"data": asked})).data
    assert data.train == Path("/new/train.tsv")
    assert data.dev == (Path("/gone/a"), Path("/gone/b")), "another name is no move"
    assert data.test == tmp_path / "there.tsv", "a file that is there was not moved"
