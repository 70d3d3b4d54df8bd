"""A matcher goes on exactly where it was stopped."""

import pytest

import antiphon as package
from antiphon.exceptions import InputError
from antiphon.recipe.recipe_file import load_recipe
from antiphon.training.fit import train
from tests.cli.test_answer_selection import SMALL
from tests.toy import QUESTION_HEADER, write_questions, write_vectors
from tests.training.test_fit import KilledError, assert_same_run, kill_in_epoch

__all__ = ["kill_in_epoch"]


@pytest.fixture
def recipe(tmp_path):
    write_questions(tmp_path / "train.tsv", 25, seed=1)
    write_questions(tmp_path / "dev.tsv", 10, seed=2)
    write_vectors(tmp_path / "vectors.txt")
    (tmp_path / "recipe.toml").write_text('[data]\ntrain = "train.tsv"\ndev = "dev.tsv"\nvectors = "vectors.txt"\n')
    return load_recipe(
        tmp_path / "recipe.toml",
        ["model.kind=matcher", *SMALL, "train.max_epochs=4", "train.passes=1", "train.l2=0.01", "model.overlap=true"],
    )


@pytest.mark.parametrize("listwise_weight", [0.0, 0.5])
def test_a_killed_matcher_resumed_ends_where_an_uninterrupted_one_ends(
    recipe, tmp_path, kill_in_epoch, listwise_weight
):
    recipe = with_listwise_weight(recipe, listwise_weight)
    whole = train(recipe, tmp_path / "whole")
    come_back = kill_in_epoch(2)
    with pytest.raises(KilledError):
        train(recipe, tmp_path / "killed")
    come_back()
    assert package.load(tmp_path / "killed").rank("which ?", ["the", "a"])  # a run can be used before its training ends
    resumed = train(recipe, tmp_path / "killed", resume=True)
    assert_same_run(whole, resumed)
    assert resumed.logistic.read_bytes() == whole.logistic.read_bytes()


def with_listwise_weight(recipe, weight, **settings):
    settings = recipe.train.model_copy(update={"listwise_weight": weight, **settings})
    return recipe.model_copy(update={"train": settings})


def test_a_listwise_loss_changes_what_is_learnt(recipe, tmp_path):
    recipes = [with_listwise_weight(recipe, weight, learning_rate=0.01) for weight in (0.0, 0.5)]
    runs = [train(one, tmp_path / f"run{index}") for index, one in enumerate(recipes)]
    losses = [float(run.log.read_text().splitlines()[1].split(",")[1]) for run in runs]
    assert losses[1] > losses[0] + 0.3
    assert runs[0].weights.read_bytes() != runs[1].weights.read_bytes()


def test_a_listwise_loss_needs_a_question_with_right_and_wrong_candidates(recipe, tmp_path):
    rows = [
        f"{question}\twhich\t{question}-{n}\tthe\t{label}\n" for question, label in (("a", 0), ("b", 1)) for n in (0, 1)
    ]
    (tmp_path / "train.tsv").write_text(QUESTION_HEADER + "".join(rows))
    with pytest.raises(
        InputError, match=r"train\.listwise_weight = 0\.5: no question of .*train\.tsv has both right and"
    ):
        train(with_listwise_weight(recipe, 0.5), tmp_path / "run")


def test_the_best_epoch_is_that_of_the_whole_model_words_in_common_included(recipe, tmp_path):
    run = train(recipe, tmp_path / "run")
    metrics = run.metrics()
    assert {"dev_map", "dev_mrr", "dev_p_at_1", "dev_network_map", "dev_perplexity"} <= metrics.keys()
    from antiphon.api.model import load
    from antiphon.ranking.questions import read_questions

    questions = read_questions(tmp_path / "dev.tsv", print)
    found = load(run.path).evaluate_questions(questions, which="mixed").metrics["map"].value
    assert found == pytest.approx(metrics["dev_map"], abs=1e-6)
