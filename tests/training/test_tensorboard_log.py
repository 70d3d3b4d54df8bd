"""Metrics for TensorBoard."""

import importlib.util

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from antiphon.api import load
from antiphon.exceptions import RecipeError
from antiphon.training import checks
from antiphon.training.fit import train
from tests.training.test_fit import KilledError, kill_in_epoch, recipe

__all__ = ["kill_in_epoch", "recipe"]

LOGGED = "train.log=tensorboard"


def scalars(run):
    """The values of every tag, by epoch."""
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    return {tag: {event.step: event.value for event in events.Scalars(tag)} for tag in events.Tags()["scalars"]}


def test_event_files_hold_the_metrics_of_every_epoch(recipe, tmp_path):
    settings = recipe(LOGGED, "train.max_epochs=3")
    run = train(settings, tmp_path / "run")
    found = scalars(run.path)
    lines = [line.split(",") for line in run.log.read_text().splitlines()]
    names = {"train_loss": "train/loss", "dev_accuracy": "dev/accuracy", "dev_perplexity": "dev/perplexity"}
    for name, tag in names.items():
        logged = [float(line[lines[0].index(name)]) for line in lines[1:]]
        assert list(found[tag].values()) == pytest.approx(logged, rel=1e-5)
        assert list(found[tag]) == [1, 2, 3]
    assert found["train/learning_rate"][3] == pytest.approx(0.1 * settings.train.learning_rate)
    assert load(run.path).predict(["badu"])  # the folder does not disturb the checks of the run


def test_a_resumed_run_continues_its_curves(recipe, tmp_path, kill_in_epoch):
    come_back = kill_in_epoch(2)
    with pytest.raises(KilledError):
        train(recipe(LOGGED), tmp_path / "run")
    come_back()
    train(recipe(LOGGED), tmp_path / "run", resume=True)
    assert list(scalars(tmp_path / "run")["train/loss"]) == [1, 2, 3, 4]


def test_a_new_run_drops_the_curves_of_the_one_that_it_replaces(recipe, tmp_path):
    train(recipe(LOGGED, "train.max_epochs=2"), tmp_path / "run")
    train(recipe(LOGGED, "train.max_epochs=1"), tmp_path / "run", force=True)
    assert list(scalars(tmp_path / "run")["train/loss"]) == [1]
    train(recipe("train.max_epochs=1"), tmp_path / "run", force=True)
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_a_missing_package_is_named_before_training(recipe, tmp_path, monkeypatch):
    def find_spec(name):
        return None if name == "tensorboard" else importlib.util.find_spec(name)

    monkeypatch.setattr(checks, "find_spec", find_spec)
    with pytest.raises(RecipeError, match=r"train\.log = tensorboard: tensorboard is missing, .*\[log\]"):
        train(recipe(LOGGED), tmp_path / "run")
    assert not (tmp_path / "run").exists()
