"""Lengths of runs: what a recipe leaves open is chosen by the number of pairs."""

import pytest

from antiphon.recipe.schema import Recipe
from antiphon.training.history import History, is_perfect
from antiphon.training.training_length import TrainingLength, longer_than, with_length_defaults


def defaults_of(pairs, batch_size=32, **settings):
    recipe = Recipe.model_validate({"train": {"batch_size": batch_size, **settings}})
    return TrainingLength.of(with_length_defaults(recipe, -(-pairs // batch_size)).train)


@pytest.mark.parametrize(
    ("pairs", "batch_size", "length"),
    [
        (1, 32, TrainingLength(passes=100, max_epochs=60, patience=12)),
        (100, 16, TrainingLength(passes=15, max_epochs=58, patience=12)),
        (100, 32, TrainingLength(passes=25, max_epochs=60, patience=12)),
        (1_000, 16, TrainingLength(passes=2, max_epochs=48, patience=10)),
        (1_000, 32, TrainingLength(passes=4, max_epochs=47, patience=10)),
        (10_000, 32, TrainingLength(passes=1, max_epochs=40, patience=10)),
        (100_000, 32, TrainingLength(passes=1, max_epochs=40, patience=10)),
    ],
)
def test_few_pairs_are_learnt_for_as_many_updates_and_many_for_enough_passes(pairs, batch_size, length):
    assert defaults_of(pairs, batch_size) == length
    per_pass = -(-pairs // batch_size)
    assert length.passes * per_pass >= 100
    assert length.max_epochs * length.passes * per_pass >= 6_000
    assert length.max_epochs * length.passes >= 40


def test_a_length_given_in_updates_or_passes_is_rounded_up_to_whole_epochs():
    assert defaults_of(1_000, max_updates=30_000).max_epochs == 235
    assert defaults_of(1_000, max_updates=1, min_passes=9) == TrainingLength(passes=4, max_epochs=3, patience=10)


def test_what_a_recipe_says_holds():
    assert defaults_of(100, max_epochs=7, patience=3, passes=2) == TrainingLength(passes=2, max_epochs=7, patience=3)
    assert defaults_of(1_000, max_epochs=100, max_updates=1) == TrainingLength(passes=4, max_epochs=100, patience=20)


def test_patience_is_longer_where_the_learning_rate_falls():
    assert defaults_of(1_000, max_epochs=60, final_learning_rate_ratio=0.1) == TrainingLength(
        passes=4, max_epochs=60, patience=30
    )


@pytest.mark.parametrize(
    ("max_epochs", "epochs", "best", "longer"),
    [(3, 3, 2, 5), (3, 3, 1, None), (100, 100, 96, 150), (100, 100, 95, None), (100, 80, 79, None), (None, 1, 1, None)],
)
def test_a_run_whose_best_epoch_is_among_its_last_could_be_longer(max_epochs, epochs, best, longer):
    settings = Recipe.model_validate({"train": {"max_epochs": max_epochs}}).train
    assert longer_than(settings, best, epochs) == longer


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
        ("phoneme_error_rate", [20.0, 8.0, 9.0, 400.0], 100, 3),
        ("edit_distance", [1.5, 1.2, 1.21], 100, 2),
    ],
)
def test_of_epochs_that_the_dev_set_cannot_tell_apart_the_last_is_the_best(metric, values, pairs, best):
    assert history_of(metric, 9, values, pairs).best["epoch"] == best


def test_a_perfect_dev_metric_ends_training_after_some_epochs():
    assert not history_of("accuracy", 99, [90.0, 100.0, 100.0]).has_converged
    assert history_of("accuracy", 99, [90.0, 100.0, 100.0, 100.0]).has_converged
    assert not history_of("phoneme_error_rate", 99, [0.0, 0.0, 0.1, 0.0]).has_converged
    assert history_of("phoneme_error_rate", 99, [0.0, 0.0, 0.0]).has_converged
