"""N-best weight search for a noisy channel."""

from types import SimpleNamespace

import numpy as np
import pytest

from antiphon.recipe.recipe_file import make_recipe
from antiphon.torch_free.hypothesis import Weights
from antiphon.tune import NBestLists, best_weights, choose, start_lists
from tests.tune.test_nbest_lists import CODEC, PAIR


class Combination:
    """A model that has nothing but weights."""

    def __init__(self, *weights):
        self.weights = Weights(*weights)


def tune_on_lists(model, lists):
    """Finds weights on lists, and measures on them too."""
    table, before = lists.table(), model.weights
    found = best_weights(lists, before)
    return choose(model, lists.metric, lambda weights: table.value(np.array(weights)), before, found, rounds=1)


def lists_in_which_the_direct_model_is_wrong():
    lists = NBestLists([PAIR], CODEC, "accuracy")
    lists.add([[(("a", "b"), (-900.0, -1.0, 0.0, 2.0)), (("a", "c"), (-1.0, -2.0, 0.0, 2.0))]])
    return lists


@pytest.mark.parametrize(
    ("source", "target", "metric"),
    [("chars", "words", "accuracy"), ("chars", "chars", "accuracy"), ("words", "words", "bleu")],
)
def test_only_text_is_tuned_for_bleu(source, target, metric):
    data = {"source_tokens": source, "target_tokens": target}
    model = SimpleNamespace(recipe=make_recipe({"data": data}), codec=CODEC)
    assert start_lists(model, [PAIR], None).metric == metric


def test_a_part_that_only_misleads_keeps_a_weight_that_can_grow_again():
    model = Combination(1.0, 1.0, 0.0, 0.0)
    tuning = tune_on_lists(model, lists_in_which_the_direct_model_is_wrong())
    assert tuning.after > tuning.before
    assert 0 < model.weights.direct < 0.002
    assert model.weights.channel == 1


def test_the_direct_model_stays_alone_where_nothing_is_better():
    lists = NBestLists([PAIR], CODEC, "accuracy")
    lists.add([[(("a", "b"), (-1.0, -9.0, 0.0, 2.0)), (("a", "c"), (-2.0, -1.0, 0.0, 2.0))]])
    model = Combination(1.0, 1.0, 0.0, 0.0)
    tuning = tune_on_lists(model, lists)
    assert (tuning.direct, tuning.before, tuning.after) == (100.0, 0.0, 100.0)
    assert model.weights == (1.0, 0.0, 0.0, 0.0)


def test_a_part_without_a_weight_gets_none():
    model = Combination(1.0, 1.0, 0.0, 0.0)
    tune_on_lists(model, lists_in_which_the_direct_model_is_wrong())
    assert model.weights.language_model == 0


def test_a_direct_model_that_only_proposes_does_not_become_the_whole_model():
    lists = NBestLists([PAIR], CODEC, "accuracy")
    lists.add([[(("a", "b"), (-1.0, -9.0, 0.0, 2.0)), (("a", "c"), (-2.0, -1.0, 0.0, 2.0))]])
    model = Combination(0.0, 1.0, 0.0, 0.0)
    tuning = tune_on_lists(model, lists)
    assert (tuning.direct, tuning.after) == (100.0, 0.0)
    assert model.weights.direct == 0
