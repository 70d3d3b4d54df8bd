"""Checkpoints within an epoch, and those of earlier versions."""

import pytest
import torch

from antiphon.exceptions import RunError
from antiphon.runs.run_folder import RunFolder
from antiphon.training import task
from antiphon.training.fit import train
from antiphon.training.state import TrainingState, load_checkpoint
from tests.training.test_fit import KilledError, assert_same_run, kill_in_epoch, recipe, whole
from tests.training.test_out_of_memory import Memory

__all__ = ["kill_in_epoch", "recipe", "whole"]

EVERY_UPDATE = "train.checkpoint_minutes=1e-9"


def killed(settings, folder, kill_in_epoch, epoch, update):
    """The checkpoint of a run that was killed before an update."""
    come_back = kill_in_epoch(epoch, update)
    with pytest.raises(KilledError):
        train(settings, folder)
    come_back()
    return load_checkpoint(folder / "last.ckpt")


@pytest.mark.parametrize(("epoch", "update"), [(0, 3), (2, 7)])
def test_a_run_killed_within_an_epoch_resumes_from_there_to_the_same_weights_and_log(
    recipe, tmp_path, kill_in_epoch, epoch, update, whole
):
    """Dropout, the learning rate, the EMA, the order of batches and the mean loss continue where they were."""
    checkpoint = killed(recipe(EVERY_UPDATE), tmp_path / "killed", kill_in_epoch, epoch, update)
    assert (checkpoint["epochs"], checkpoint["updates"]) == (epoch, update)
    resumed = train(recipe(EVERY_UPDATE), tmp_path / "killed", resume=True)
    assert_same_run(whole, resumed)


def test_a_resumed_run_makes_no_update_again(recipe, tmp_path, kill_in_epoch, monkeypatch):
    killed(recipe(EVERY_UPDATE), tmp_path / "run", kill_in_epoch, 1, 5)
    made, step = [], torch.optim.Adam.step
    monkeypatch.setattr(torch.optim.Adam, "step", lambda self, *args: made.append(1) or step(self, *args))
    train(recipe(EVERY_UPDATE), tmp_path / "run", resume=True)
    assert len(made) == 4 * 8 - (8 + 5)


def test_a_run_killed_after_memory_ran_out_continues_with_the_same_random_numbers(
    recipe, tmp_path, kill_in_epoch, monkeypatch
):
    monkeypatch.setattr(task, "negative_log_likelihood", Memory(700))
    whole = train(recipe(), tmp_path / "whole")
    killed(recipe(EVERY_UPDATE), tmp_path / "killed", kill_in_epoch, 0, 6)
    assert_same_run(whole, train(recipe(EVERY_UPDATE), tmp_path / "killed", resume=True))


def test_checkpoints_within_an_epoch_wait_for_their_time(recipe, tmp_path, monkeypatch):
    """The clock moves by a minute with every look at it."""
    minutes, saved = iter(range(10**6)), []
    monkeypatch.setattr("antiphon.training.loop.time.monotonic", lambda: 60.0 * next(minutes))
    save = TrainingState.checkpoint
    monkeypatch.setattr(TrainingState, "checkpoint", lambda self, *args: saved.append(self.update) or save(self, *args))
    train(recipe("train.checkpoint_minutes=3", "train.max_epochs=1"), tmp_path / "often")
    often, saved[:] = list(saved), []
    train(recipe("train.checkpoint_minutes=1000", "train.max_epochs=1"), tmp_path / "seldom")
    assert saved == [0]
    assert often == [2, 5, 0]


def test_no_checkpoint_is_written_once_the_loss_is_not_finite(recipe, tmp_path, kill_in_epoch, monkeypatch):
    batches, likelihood = [], task.negative_log_likelihood

    def diverge(model, batch):
        batches.append(batch)
        return likelihood(model, batch) * (float("nan") if len(batches) > 4 else 1.0)

    monkeypatch.setattr(task, "negative_log_likelihood", diverge)
    checkpoint = killed(recipe(EVERY_UPDATE), tmp_path / "run", kill_in_epoch, 0, 6)
    assert checkpoint["updates"] == 4
    assert all(weight.isfinite().all() for weight in checkpoint["model"].values())


def test_what_only_resembles_a_checkpoint_is_refused(tmp_path):
    torch.save({"module": {"averaged.weight": torch.ones(1)}}, tmp_path / "last.ckpt")
    with pytest.raises(RunError, match="not a checkpoint of training"):
        load_checkpoint(tmp_path / "last.ckpt")


def test_a_run_with_no_finished_epoch_is_resumed_but_does_not_predict(recipe, tmp_path, kill_in_epoch):
    killed(recipe(EVERY_UPDATE), tmp_path / "run", kill_in_epoch, 0, 4)
    run = RunFolder.open(tmp_path / "run")
    assert not run.weights.exists()
    with pytest.raises(RunError, match="expected a run that finished at least one epoch"):
        run.trained_weights()
