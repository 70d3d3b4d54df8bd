"""Training that has to fit into some minutes: fewer epochs, a smaller network, and a run that records both."""

import pytest

from antiphon.recipe.recipe_file import load_recipe
from antiphon.training import time_limit
from antiphon.training.fit import train
from tests.toy import write_recipe
from tests.training.test_fit import KilledError, assert_same_run, kill_in_epoch

__all__ = ["kill_in_epoch"]

RECIPE = """
[model]
hidden_size = 12
[train]
max_epochs = 6
passes = 1
final_learning_rate_ratio = 0.1
"""


@pytest.fixture
def recipe(tmp_path):
    return write_recipe(tmp_path, 60, 10, RECIPE)


@pytest.fixture
def an_epoch_takes(monkeypatch):
    """Sets how many seconds an epoch of a network of some width seems to take."""

    def choose(seconds):
        def measured(task, *_):
            return seconds(task.settings.recipe.model.width)

        monkeypatch.setattr(time_limit, "_measured_seconds", measured)

    return choose


def test_a_run_has_as_many_epochs_as_there_is_time_for(antiphon, recipe, tmp_path, an_epoch_takes):
    an_epoch_takes(lambda width: 20.0)
    done = antiphon("train", recipe, "--minutes", "1", "--out", tmp_path / "run")
    assert done.status == 0, done.err
    stored = load_recipe(tmp_path / "run" / "recipe.toml").train
    assert (stored.max_epochs, stored.patience, stored.minutes) == (3, 10, 1)
    assert len((tmp_path / "run" / "log.csv").read_text().splitlines()) == 4
    planned = antiphon("train", recipe, "--minutes", "1", "--dry-run").err
    assert "train.max_epochs         3      train.minutes is 1, an epoch takes 20 s" in planned


def test_a_run_is_no_longer_than_its_recipe_wants(antiphon, recipe, an_epoch_takes):
    an_epoch_takes(lambda width: 1.0)
    planned = antiphon("train", recipe, "--minutes", "1", "--dry-run").err
    assert "6 epochs" in planned
    assert "train.max_epochs" not in planned


def test_one_epoch_is_trained_even_if_it_takes_longer(antiphon, recipe, an_epoch_takes):
    an_epoch_takes(lambda width: 90.0)
    planned = antiphon("train", recipe, "--minutes", "1", "--dry-run").err
    assert "train.minutes = 1: an epoch takes about 1:30, so training takes longer" in planned
    assert "1 epoch of 2 updates" in planned


def test_a_network_is_smaller_where_few_epochs_fit(antiphon, recipe, an_epoch_takes):
    an_epoch_takes(lambda width: width / 8)
    wide = ("--set", "model.hidden_size=512", "--set", "model.embedding_size=256", "--minutes", "1", "--dry-run")
    planned = antiphon("train", recipe, *wide).err
    assert "model.hidden_size        128    train.minutes is 1, too little for 512" in planned
    assert "train.max_epochs         3      train.minutes is 1, an epoch takes 16 s" in planned


def test_a_run_that_fits_some_minutes_is_resumed_as_it_began(recipe, tmp_path, an_epoch_takes, kill_in_epoch):
    an_epoch_takes(lambda width: 20.0)
    asked = load_recipe(recipe, ["train.minutes=1"])
    whole = train(asked, tmp_path / "whole")
    come_back = kill_in_epoch(1, update=1)
    with pytest.raises(KilledError):
        train(asked, tmp_path / "run")
    come_back()
    an_epoch_takes(lambda width: 30.0)
    assert_same_run(whole, train(asked, tmp_path / "run", resume=True))


def test_the_time_of_an_epoch_is_measured_with_its_validation(recipe, tmp_path):
    said = []
    run = train(load_recipe(recipe, ["train.minutes=1000"]), tmp_path / "run", say=said.append)
    assert run.recipe().train.max_epochs == 6
    assert len(run.log.read_text().splitlines()) == 7
