"""Training that diverges ends at its last good epoch, says so, and saves nothing that is not finite."""

import math

import pytest
import torch
from safetensors.torch import load_file

from antiphon.exceptions import RunError
from antiphon.metrics.output_metrics import perplexity
from antiphon.recipe.recipe_file import load_recipe
from antiphon.training.fit import train
from antiphon.training.step import Step
from antiphon.training.task import EpochBatches
from tests.toy import write_questions, write_recipe, write_vectors

SMALL = ["model.hidden_size=12", "train.learning_rate=0.01", "train.max_epochs=4", "train.passes=1"]


@pytest.fixture
def recipe(tmp_path):
    path = write_recipe(tmp_path, 60, 20)
    return lambda *settings: load_recipe(path, [*SMALL, *settings])


@pytest.fixture
def matcher(tmp_path):
    write_questions(tmp_path / "train.tsv", 20, 1)
    write_questions(tmp_path / "dev.tsv", 10, 2)
    write_vectors(tmp_path / "vectors.txt")
    (tmp_path / "matcher.toml").write_text(
        '[data]\ntrain = "train.tsv"\ndev = "dev.tsv"\nvectors = "vectors.txt"\n[model]\nkind = "matcher"\n'
    )
    return load_recipe(tmp_path / "matcher.toml", [*SMALL, "train.dev_metric=map"])


@pytest.fixture
def diverge(monkeypatch):
    """Makes the loss of every batch of an epoch NaN or infinite."""

    def arrange(epoch, value=math.nan):
        losses, now = Step.losses, []
        shard = EpochBatches.shard

        def note_epoch(self, current, index, indices):
            now[:] = [current]
            return shard(self, current, index, indices)

        monkeypatch.setattr(EpochBatches, "shard", note_epoch)
        monkeypatch.setattr(Step, "losses", lambda self, batch: losses(self, batch) * (value if now == [epoch] else 1))

    return arrange


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("metric", ["perplexity", "accuracy"])
def test_the_best_good_epoch_is_kept_and_the_bad_one_leaves_no_trace(recipe, tmp_path, diverge, metric, value):
    settings = recipe(f"train.dev_metric={metric}", "train.ema_decay=0.5")
    diverge(2, value)
    run = train(settings, tmp_path / "run")
    assert run.metrics()["epochs"] == 2
    assert run.metrics()["stopped"] == "the loss or the weights are not finite in epoch 3"
    assert all(tensor.isfinite().all() for tensor in load_file(run.weights).values())
    assert "nan" not in run.log.read_text()
    assert len(run.log.read_text().splitlines()) == 3


def test_a_matcher_is_stopped_as_well(matcher, tmp_path, diverge):
    diverge(1)
    run = train(matcher, tmp_path / "run")
    assert run.metrics()["epochs"] == 1
    assert "not finite in epoch 2" in run.metrics()["stopped"]


def test_weights_that_are_not_finite_are_noticed_though_every_loss_was(recipe, tmp_path, monkeypatch):
    """A last step can spoil what its loss could not show."""
    step = torch.optim.Adam.step
    taken = []

    def spoil(self, *arguments):
        result = step(self, *arguments)
        taken.append(1)
        if len(taken) == 4:
            next(iter(self.param_groups[0]["params"])).data.fill_(math.nan)
        return result

    monkeypatch.setattr(torch.optim.Adam, "step", spoil)
    run = train(recipe("train.dev_metric=accuracy"), tmp_path / "run")
    assert run.metrics()["epochs"] == 1
    assert "not finite in epoch 2" in run.metrics()["stopped"]


def test_without_a_good_epoch_there_is_no_run(recipe, tmp_path, diverge):
    diverge(0)
    with pytest.raises(RunError, match=r"not finite in epoch 1, and no epoch before it, .* train\.learning_rate"):
        train(recipe(), tmp_path / "run")
    assert not (tmp_path / "run" / "model.safetensors").exists()
    assert not (tmp_path / "run" / "metrics.json").exists()


def test_the_command_says_so_with_a_status_of_its_own(antiphon, recipe, tmp_path, diverge):
    settings = [part for setting in SMALL for part in ("--set", setting)]
    diverge(1)
    result = antiphon("train", tmp_path / "recipe.toml", *settings, "--out", tmp_path / "some")
    assert result.status == 1
    last = result.err.strip().splitlines()[-1]
    assert "not finite in epoch 2; training stopped, the weights are those of epoch 1" in last
    diverge(0)
    result = antiphon("train", tmp_path / "recipe.toml", *settings, "--out", tmp_path / "none")
    assert result.status == 2
    assert "nothing was trained" in result.err.strip().splitlines()[-1]


def test_the_perplexity_of_what_is_not_finite_is_not_finite():
    assert math.isnan(perplexity(math.nan, 3).value)
    assert perplexity(-math.inf, 3).value == math.inf
    assert math.isfinite(perplexity(-1e9, 3).value)
