"""The learning rate of every update."""

import pytest

from antiphon.recipe.recipe_file import load_recipe
from antiphon.training.callback import Callback
from antiphon.training.fit import train
from antiphon.training.optimisation import Schedule
from tests.toy import write_pairs


def rates(final, epochs, updates, warmup=0):
    schedule = Schedule(0.2, final_learning_rate_ratio=final, warmup_updates=warmup, max_epochs=epochs)
    return [schedule.rate(epoch, index, updates) / 0.2 for epoch in range(epochs) for index in range(updates)]


@pytest.mark.parametrize(
    ("final", "epochs", "updates", "warmup", "expected"),
    [
        (0.1, 1, 1, 0, [1.0]),
        (0.1, 1, 2, 0, [1.0, 0.1]),
        (0.1, 5, 1, 0, [1.0, 0.8682, 0.55, 0.2318, 0.1]),
        (0.5, 2, 2, 0, [1.0, 0.875, 0.625, 0.5]),
        (1.0, 3, 1, 0, [1.0, 1.0, 1.0]),
        (1.0, 2, 3, 4, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]),
        (0.1, 1, 7, 2, [0.5, 1.0, 1.0, 0.8682, 0.55, 0.2318, 0.1]),
        (0.1, 1, 2, 4, [0.25, 0.5]),
    ],
)
def test_the_learning_rate_rises_in_the_warm_up_and_falls_along_a_cosine(final, epochs, updates, warmup, expected):
    assert rates(final, epochs, updates, warmup) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("updates", [1, 7, 100])
def test_the_last_update_has_the_fraction_asked_for(updates):
    found = rates(0.1, 5, updates)
    assert found[0] == 1.0
    assert found[-1] == pytest.approx(0.1, abs=1e-12)
    assert found == sorted(found, reverse=True)


def test_a_rate_that_stays_is_exact():
    assert set(rates(1.0, 3, 10)) == {1.0}


class Rates(Callback):
    """Notes the learning rate that every update had."""

    def __init__(self):
        self.noted = []

    def on_update_end(self, progress):
        self.noted.append(progress.learning_rate)


def test_training_takes_every_update_at_its_own_rate(tmp_path):
    write_pairs(tmp_path / "train.tsv", 50, 1)
    (tmp_path / "recipe.toml").write_text(
        '[data]\ntrain = "train.tsv"\ndev = "train.tsv"\n[model]\nhidden_size = 4\n[train]\nlearning_rate = 0.2\n'
        "final_learning_rate_ratio = 0.1\nwarmup_updates = 3\nmax_epochs = 3\npasses = 2\n"
    )
    noted = Rates()
    train(load_recipe(tmp_path / "recipe.toml"), tmp_path / "run", callbacks=[noted])
    assert noted.noted == pytest.approx([0.2 * rate for rate in rates(0.1, epochs=3, updates=4, warmup=3)])
    assert noted.noted[-1] == pytest.approx(0.02)
