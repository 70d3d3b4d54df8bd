"""A matcher goes on exactly where it was stopped."""

import pytest

from antiphon.recipe.recipe_file import load_recipe
from antiphon.training.fit import train
from tests.cli.test_answer_selection import SMALL
from tests.toy import write_questions, write_vectors
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


def test_a_killed_matcher_resumed_ends_where_an_uninterrupted_one_ends(recipe, tmp_path, kill_in_epoch):
    whole = train(recipe, tmp_path / "whole")
    come_back = kill_in_epoch(2)
    with pytest.raises(KilledError):
        train(recipe, tmp_path / "killed")
    come_back()
    resumed = train(recipe, tmp_path / "killed", resume=True)
    assert_same_run(whole, resumed)
    assert resumed.logistic.read_bytes() == whole.logistic.read_bytes()


def test_the_best_epoch_is_that_of_the_whole_model_words_in_common_included(recipe, tmp_path):
    run = train(recipe, tmp_path / "run")
    metrics = run.metrics()
    assert {"dev_map", "dev_mrr", "dev_p_at_1", "dev_network_map", "dev_perplexity"} <= metrics.keys()
    from antiphon.api import load
    from antiphon.ranking.question_files import read_questions

    questions = read_questions(tmp_path / "dev.tsv", print)
    found = load(run.path).evaluate_questions(questions, which="mixed").metrics["map"].value
    assert found == pytest.approx(metrics["dev_map"], abs=1e-6)
