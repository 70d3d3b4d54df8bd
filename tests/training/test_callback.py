"""What callbacks are told, and what training leaves alone."""

import pytest
import torch

from antiphon.runs.run_folder import load_network
from antiphon.training.callback import Callback
from antiphon.training.fit import train
from tests.training.test_fit import KilledError, kill_in_epoch, recipe

__all__ = ["kill_in_epoch", "recipe"]


class Recorder(Callback):
    """Notes everything."""

    def __init__(self):
        self.calls, self.losses, self.models = [], [], []

    def on_train_begin(self, history, max_epochs):
        self.calls.append(("begin", len(history.rows), max_epochs))

    def on_update_end(self, progress):
        self.calls.append(("update", progress.epoch, progress.update, progress.updates))
        self.losses.append(progress.loss)

    def on_epoch_end(self, epoch, metrics, model):
        self.calls.append(("epoch", epoch, metrics["epoch"]))
        assert self.losses[-1] == pytest.approx(metrics["train_loss"])
        assert {"dev_accuracy", "dev_perplexity", "seconds", "pairs_per_second"} <= metrics.keys()
        assert not model.training
        self.models.append({name: weight.clone() for name, weight in model.state_dict().items()})

    def on_train_end(self):
        self.calls.append(("end",))


def test_callbacks_are_told_of_every_update_and_epoch(recipe, tmp_path):
    seen = Recorder()
    run = train(recipe("train.max_epochs=2"), tmp_path / "run", callbacks=[seen])
    updates = [[("update", epoch, update, 8) for update in range(1, 9)] for epoch in (1, 2)]
    assert seen.calls == [("begin", 0, 2), *updates[0], ("epoch", 1, 1), *updates[1], ("epoch", 2, 2), ("end",)]
    best = seen.models[run.metrics()["best_epoch"] - 1]
    trained = torch.nn.Module.state_dict(load_network(run, run.recipe()))
    assert all(torch.equal(weight, trained[name]) for name, weight in best.items())


def test_callbacks_are_told_of_the_end_whatever_ends_training(recipe, tmp_path, kill_in_epoch):
    kill_in_epoch(1)
    with pytest.raises(KilledError):
        train(recipe(), tmp_path / "run", callbacks=[seen := Recorder()])
    assert seen.calls[-1] == ("end",)


def test_training_leaves_the_random_numbers_and_threads_of_its_caller_alone(recipe, tmp_path):
    torch.manual_seed(5)
    expected, threads = torch.rand(3), torch.get_num_threads()
    torch.manual_seed(5)
    train(recipe("train.max_epochs=1", "train.passes=1", "model.hidden_size=4"), tmp_path / "run", threads=2)
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads
