"""Lists and ranges of values, and the recipes that they make."""

from pathlib import Path

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from antiphon.exceptions import RecipeError
from antiphon.recipe.recipe_file import find_recipe
from antiphon.settings_search.search_space import parse_space


def space_of(*grid, settings=()):
    return parse_space(find_recipe("toy"), settings, grid, Path("out"))


@pytest.mark.parametrize(
    ("text", "distribution"),
    [
        ("1,2, 2", CategoricalDistribution(("1", "2"))),
        ("../a.tsv,../b.tsv", CategoricalDistribution(("../a.tsv", "../b.tsv"))),
        ("64..512", IntDistribution(64, 512)),
        ("64..512:step=64", IntDistribution(64, 512, step=64)),
        ("1..1000:log", IntDistribution(1, 1000, log=True)),
        ("1e-4..1e-2:log", FloatDistribution(1e-4, 1e-2, log=True)),
        ("0..0.5", FloatDistribution(0.0, 0.5)),
        ("0.1..0.5:step=0.1", FloatDistribution(0.1, 0.5, step=0.1)),
        ("-1.5..-.5", FloatDistribution(-1.5, -0.5)),
    ],
)
def test_values_are_a_list_or_a_range(text, distribution):
    assert space_of(f"train.seed={text}").distributions == {"train.seed": distribution}


@pytest.mark.parametrize("text", ["5..1", "0..1:log", "0.5..0.1", "1..9:step=0"])
def test_a_range_that_is_none_is_refused(text):
    with pytest.raises(RecipeError, match=r"--grid train.seed=.*: not a range"):
        space_of(f"train.seed={text}")


def test_a_setting_is_searched_once():
    with pytest.raises(RecipeError, match=r"train\.seed: given twice"):
        space_of("train.seed=1,2", "train.seed=3")


def test_both_ends_of_a_range_have_to_be_possible():
    space_of("model.dropout=0.0..0.5", "model.layers=1,2").check(every_combination=False)
    with pytest.raises(RecipeError, match=r"model\.dropout"):
        space_of("model.dropout=0.0..1.5", "model.layers=1,2").check(every_combination=False)


def test_drawn_numbers_have_four_digits_in_recipe_and_folder():
    space = space_of("train.learning_rate=1e-4..1e-2:log", "model.layers=1,2")
    settings = space.settings_of({"train.learning_rate": 0.00123456, "model.layers": "2"})
    assert settings == ("train.learning_rate=0.001235", "model.layers=2")
    assert space.recipe(settings).train.learning_rate == 0.001235
    assert space.folder(settings) == Path("out/train.learning_rate=0.001235,model.layers=2")


def test_what_all_trials_share_is_what_recipe_and_settings_say():
    by_recipe, by_setting = space_of("train.seed=1,2"), space_of("train.seed=1,2", settings=["train.max_epochs=3"])
    assert by_setting.fixed == by_recipe.fixed | {"train.max_epochs": "3"}
