"""The best epoch, early stopping, and advice to train longer."""

import pytest

from antiphon.recipe.schema import Recipe
from antiphon.training.optimisation import longer_than
from antiphon.training.state import History, improved_lately, is_perfect


@pytest.mark.parametrize(
    ("max_epochs", "epochs", "best", "longer"),
    [(3, 3, 2, 5), (3, 3, 1, None), (100, 100, 96, 150), (100, 100, 95, None), (100, 80, 79, None), (None, 1, 1, None)],
)
def test_a_run_whose_best_epoch_is_among_its_last_could_be_longer(max_epochs, epochs, best, longer):
    settings = Recipe.model_validate({"train": {"max_epochs": max_epochs}}).train
    assert longer_than(settings, best, epochs) == longer


@pytest.mark.parametrize(
    ("values", "perplexities", "improves"),
    [
        ([33, 34.5, 36.5, 37, 37, 36.5], [2.08, 2.06, 2.05, 2.05, 2.06, 2.06], False),
        ([33, 34.5, 36.5, 37, 37, 39], [2.08, 2.06, 2.05, 2.05, 2.06, 2.06], True),
        ([0, 0, 0, 0], [9, 8, 7, 6], True),
        ([50], [2], False),
    ],
)
def test_a_dev_metric_that_was_level_at_the_end_does_not_still_improve(values, perplexities, improves):
    rows = [
        {"dev_accuracy": value, "dev_perplexity": perplexity}
        for value, perplexity in zip(values, perplexities, strict=True)
    ]
    assert improved_lately("accuracy", rows) == improves


@pytest.mark.parametrize(
    ("metric", "perfect", "worse"), [("accuracy", 100.0, 99.9), ("word_error_rate", 0.0, 0.1), ("map", 1.0, 0.9)]
)
def test_a_perfect_dev_metric_cannot_improve(metric, perfect, worse):
    assert is_perfect(metric, perfect)
    assert not is_perfect(metric, worse)


def history_of(metric, patience, values, comparable_pairs=0):
    """A history whose perplexity falls all the time."""
    history = History(metric, patience, comparable_pairs)
    for epoch, value in enumerate(values, 1):
        history.add({"epoch": epoch, f"dev_{metric}": value, "dev_perplexity": 10 - epoch})
    return history


def test_an_epoch_that_is_as_good_may_be_the_best_but_does_not_count_as_progress():
    history = history_of("accuracy", 2, [50.0, 50.0, 50.0])
    assert history.best["epoch"] == 3
    assert history.has_converged
    assert not history_of("accuracy", 2, [50.0, 50.0, 51.0]).has_converged


@pytest.mark.parametrize(
    ("metric", "values", "pairs", "best"),
    [
        ("accuracy", [70.0, 80.0, 79.0, 78.5], 100, 4),
        ("accuracy", [70.0, 80.0, 79.0, 77.0], 100, 3),
        ("accuracy", [70.0, 80.0, 79.0, 78.5], 10_000, 2),
        ("accuracy", [70.0, 80.0, 79.0], 0, 2),
        ("symbol_error_rate", [20.0, 8.0, 9.0, 400.0], 100, 3),
        ("edit_distance", [1.5, 1.2, 1.21], 100, 2),
    ],
)
def test_of_epochs_that_the_dev_set_cannot_tell_apart_the_last_is_the_best(metric, values, pairs, best):
    assert history_of(metric, 9, values, pairs).best["epoch"] == best


def test_a_perfect_dev_metric_ends_training_after_some_epochs():
    assert not history_of("accuracy", 99, [90.0, 100.0, 100.0]).has_converged
    assert history_of("accuracy", 99, [90.0, 100.0, 100.0, 100.0]).has_converged
    assert not history_of("symbol_error_rate", 99, [0.0, 0.0, 0.1, 0.0]).has_converged
    assert history_of("symbol_error_rate", 99, [0.0, 0.0, 0.0]).has_converged
