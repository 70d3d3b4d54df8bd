"""Runs that go on: where a length was chosen by the number of pairs, and with a higher one."""

import shlex
from pathlib import Path

import pytest

from antiphon.exceptions import RecipeError, RunError
from antiphon.recipe.recipe_file import load_recipe
from antiphon.recipe.schema import Recipe
from antiphon.training.fit import settings_to_resume, train
from antiphon.training.optimisation import TrainingLength
from antiphon.training.resolution import Facts, Resolution, resolve
from tests.sealing import seal_again
from tests.toy import write_recipe
from tests.training.test_fit import KilledError, assert_same_run, kill_in_epoch

__all__ = ["kill_in_epoch"]

RECIPE = """
[model]
hidden_size = 12
[train]
max_updates = 24
min_passes = 1
passes = 3
learning_rate = 0.01
ema_decay = 0.9
warmup_updates = 5
"""
"""Epochs of twelve updates, in three passes over 120 pairs."""


@pytest.fixture
def recipe(tmp_path):
    path = write_recipe(tmp_path, 120, 20, RECIPE)
    return lambda *settings: load_recipe(path, settings)


def length_of(run):
    return TrainingLength.of(run.recipe().train)


def test_a_length_that_was_chosen_is_said_and_written_down(recipe, tmp_path):
    said = []
    run = train(recipe(), tmp_path / "run", say=said.append)
    assert "2 epochs of 12 updates (each 3 passes over 120 pairs), patience 10" in said
    assert length_of(run) == TrainingLength(passes=3, max_epochs=2, patience=10)
    assert len(run.log.read_text().splitlines()) == 3


def test_a_run_of_chosen_length_made_longer_ends_where_one_of_that_length_ends(recipe, tmp_path, kill_in_epoch):
    setting = "train.max_epochs=4"
    whole = train(recipe(setting), tmp_path / "whole")
    assert length_of(whole).max_epochs == 4
    come_back = kill_in_epoch(1)
    with pytest.raises(KilledError):
        train(recipe(), tmp_path / "run")
    come_back()
    train(recipe(), tmp_path / "run", resume=True)
    longer = train(recipe(setting), tmp_path / "run", resume=True)
    assert_same_run(whole, longer)
    assert length_of(longer) == length_of(whole)
    assert longer.metrics()["epochs"] == 4


@pytest.mark.parametrize(("patience", "after"), [(None, 20), (7, 7)])
def test_patience_that_follows_from_the_epochs_follows_them_when_there_are_more(patience, after):
    def of(**settings):
        return Recipe.model_validate({"train": {"patience": patience, **settings}})

    facts = Facts(100, 4)
    stored = resolve(Resolution(of(max_epochs=20, passes=1)), facts).recipe
    longer = resolve(Resolution(settings_to_resume(stored, of(max_epochs=100), Path("run"))), facts).recipe
    assert TrainingLength.of(longer.train) == TrainingLength(passes=1, max_epochs=100, patience=after)


def test_a_run_that_was_stopped_ends_earlier_if_fewer_epochs_are_asked_for(recipe, tmp_path, kill_in_epoch):
    come_back = kill_in_epoch(3)
    with pytest.raises(KilledError):
        train(recipe("train.max_epochs=9"), tmp_path / "run")
    come_back()
    said = []
    run = train(recipe("train.max_epochs=1"), tmp_path / "run", resume=True, say=said.append)
    assert run.metrics()["epochs"] == 3  # those that were complete
    assert length_of(run).max_epochs == 1
    assert "train.max_epochs: 1 instead of the 9 of the run" in said


@pytest.mark.parametrize("updates", [12, 36])
def test_another_number_of_updates_is_refused(recipe, tmp_path, updates):
    train(recipe("train.max_epochs=3"), tmp_path / "run")
    with pytest.raises(RecipeError, match=rf"train\.max_updates is 24 in the run, .* {updates} was asked for"):
        train(recipe(f"train.max_updates={updates}"), tmp_path / "run", resume=True)


def test_an_epoch_of_an_older_run_is_one_pass(recipe, tmp_path, kill_in_epoch):
    """Its recipe has a number of epochs, and nothing about passes."""
    one_pass = recipe("train.passes=1", "train.max_epochs=4", "train.patience=20")
    whole = train(one_pass, tmp_path / "whole")
    come_back = kill_in_epoch(2)
    with pytest.raises(KilledError):
        train(one_pass, tmp_path / "run")
    come_back()
    stored = tmp_path / "run" / "recipe.toml"
    stored.write_text(stored.read_text().replace("\npasses = 1\n", "\n"))
    seal_again(tmp_path / "run")
    (tmp_path / "recipe.toml").write_text(RECIPE.replace("passes = 3\n", ""))
    resumed = train(recipe(), tmp_path / "run", resume=True)
    assert_same_run(whole, resumed)


def test_a_link_in_the_way_of_a_report_is_refused_before_training_goes_on(recipe, tmp_path, kill_in_epoch):
    come_back = kill_in_epoch(2)
    with pytest.raises(KilledError):
        train(recipe("train.max_epochs=4"), tmp_path / "run")
    come_back()
    (tmp_path / "run/training.png").symlink_to(tmp_path / "mine.png")
    before = sorted((tmp_path / "run").rglob("*"))
    with pytest.raises(RunError, match=r"training\.png: a symbolic link, expected a file or folder of the run itself"):
        train(recipe("train.max_epochs=4"), tmp_path / "run", resume=True)
    assert sorted((tmp_path / "run").rglob("*")) == before


def test_a_folder_in_the_place_of_a_report_is_refused_before_training_goes_on(recipe, tmp_path, kill_in_epoch):
    come_back = kill_in_epoch(2)
    with pytest.raises(KilledError):
        train(recipe("train.max_epochs=4"), tmp_path / "run")
    come_back()
    (tmp_path / "run/training.png").mkdir()
    before = {path: path.is_file() and path.read_bytes() for path in (tmp_path / "run").rglob("*")}
    with pytest.raises(RunError, match=r"training\.png: a folder, expected a file of the run, or none"):
        train(recipe("train.max_epochs=4"), tmp_path / "run", resume=True)
    assert {path: path.is_file() and path.read_bytes() for path in (tmp_path / "run").rglob("*")} == before


def test_the_last_line_says_how_to_go_on_with_a_run_that_still_improved(antiphon, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = ["--set", "model.hidden_size=8", "--set", "train.max_epochs=2"]
    last = antiphon("train", "toy", *small, "--out", "my run").err.splitlines()[-1]
    said, _, command = last.partition("to train longer: ")
    assert said == "still improving when training ended; "
    assert command == ("antiphon train toy --resume --set model.hidden_size=8 --set train.max_epochs=3 --out 'my run'")
    again = antiphon(*shlex.split(command)[1:])
    assert again.status == 0
    assert "epoch 3/3" in again.err


def test_a_log_from_elsewhere_is_not_read(antiphon, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["train", "toy", "--set", "model.hidden_size=8", "--set", "train.max_epochs=2", "--out", "run"]
    assert "still improving" in antiphon(*command).err
    (tmp_path / "run/log.csv").write_text("epoch,loss\nepoch,1,2\n")
    seal_again(tmp_path / "run")
    again = antiphon(*command, "--resume")
    assert again.status == 0
    assert "still improving" in again.err


def test_a_run_that_was_moved_away_from_its_data_resumes_with_the_paths_of_the_command(recipe, tmp_path):
    train(recipe("train.max_epochs=1"), tmp_path / "run")
    (tmp_path / "else/where").mkdir(parents=True)
    moved = (tmp_path / "run").rename(tmp_path / "else/where/run")
    resumed = train(recipe("train.max_epochs=2"), moved, resume=True)
    assert length_of(resumed).max_epochs == 2
    assert resumed.recipe().data.train == tmp_path / "train.tsv"
    assert_same_run(resumed, train(recipe("train.max_epochs=2"), tmp_path / "straight"))


def test_a_folder_whose_name_is_no_text_is_refused_before_training(recipe, tmp_path):
    before = sorted(tmp_path.iterdir())
    with pytest.raises(RunError, match="a name of bytes that are not UTF-8"):
        train(recipe(), Path(f"{tmp_path}/\udcff"))
    assert sorted(tmp_path.iterdir()) == before
