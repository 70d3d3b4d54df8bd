"""The recipe of the thesis's answer selection: what a run trained with it says that it was trained with."""

import json
import tomllib

import numpy as np
import pytest
import torch

import antiphon
from antiphon.ranking.matchers import build_matcher
from antiphon.recipe.recipe_file import find_recipe, load_recipe
from antiphon.training.fit import train
from tests.toy import write_questions, write_vectors

PRINTED = {
    "model": {
        "kind": "matcher",
        "hidden_size": 50,
        "layers": 3,
        "dropout": 0.4,
        "overlap_feature": "probability",
        "overlap_l2": 0.01,
        "initial_weights": "random",
        "forget_bias": 0.0,
        "state_dropout": 0.0,
        "pooling": "last",
        "bidirectional": False,
        "shared": False,
    },
    "train": {
        "optimiser": "adagrad",
        "l2_of": "sum",
        "dev_metric": "map",
        "listwise_weight": 0.0,
        "final_learning_rate_ratio": 1.0,
        "warmup_updates": 0,
        "ema_decay": 0.0,
        "clip": 1e9,
    },
    "data": {"questions": "all"},
}
"""What the thesis prints, and nothing that was added here."""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("thesis")
    write_vectors(folder / "vectors.txt", width=50)
    train, dev = (write_questions(folder / f"{name}.tsv", 30, seed) for seed, name in enumerate(("train", "dev")))
    return [f"data.train={train}", f"data.dev={dev}", f"data.vectors={folder / 'vectors.txt'}", "train.max_epochs=1"]


@pytest.mark.parametrize("counts", ["false", "true"])
@pytest.mark.parametrize("sentence", ["bag_of_words", "bigram", "lstm", "lstm_attention"])
def test_a_run_of_the_thesis_has_nothing_that_was_added_here(files, tmp_path, sentence, counts):
    settings = [*files, f"model.sentence={sentence}", f"model.overlap={counts}"]
    train(load_recipe(find_recipe("thesis-answer-selection"), settings), tmp_path / "run")
    saved = tomllib.loads((tmp_path / "run/recipe.toml").read_text())
    for section, expected in PRINTED.items():
        assert {name: saved[section][name] for name in expected} == expected
    assert saved["model"]["sentence"] == sentence
    assert (tmp_path / "run/logistic.json").exists() is (counts == "true")
    if counts == "true":
        logistic = json.loads((tmp_path / "run/logistic.json").read_text())
        assert logistic["names"] == ["words in common", "idf of words in common", "probability"]


def test_the_regression_reads_the_probability_of_the_network(files, tmp_path):
    settings = [*files, "model.sentence=bag_of_words"]
    recipe = load_recipe(find_recipe("thesis-answer-selection"), settings)
    train(recipe, tmp_path / "alone")
    train(load_recipe(find_recipe("thesis-answer-selection"), [*settings, "model.overlap=true"]), tmp_path / "counted")
    question, sentence = "which city ?", "oslo was near the big city"
    (alone,), (counted,) = (antiphon.load(tmp_path / name).rank(question, [sentence]) for name in ("alone", "counted"))
    overlap = antiphon.load(tmp_path / "counted").ranker.overlap
    logistic = json.loads((tmp_path / "counted/logistic.json").read_text())
    features = [*overlap.features(question.split(), sentence.split()), alone.probability]
    assert counted.score == pytest.approx(np.dot(features, logistic["weights"]) + logistic["intercept"])


def test_random_weights_are_those_of_pytorch_and_no_bias_is_set(files):
    settings = load_recipe(find_recipe("thesis-answer-selection"), files).model
    matcher = build_matcher(settings, torch.randn(5, 50), torch.tensor([], dtype=torch.long))
    own = matcher.sentence.question_reader.lstm
    gate = own.weight_hh_l2[:50]
    assert not torch.allclose(gate @ gate.T, torch.eye(50), atol=0.1)
    assert own.weight_hh_l2.abs().max() <= 50**-0.5
    assert own.bias_ih_l0.count_nonzero() == 200
    shared = build_matcher(settings.model_copy(update={"shared": True}), torch.randn(5, 50), torch.tensor([0]))
    assert not torch.equal(shared.match, torch.eye(50))


def test_a_new_matcher_with_random_weights_is_even_about_every_candidate(files, tmp_path):
    settings = [*files, "model.sentence=bag_of_words", "train.learning_rate=1e-9"]
    for weights, bias in (("random", 0.0), ("orthogonal", -0.5)):
        recipe = load_recipe(find_recipe("thesis-answer-selection"), [*settings, f"model.initial_weights={weights}"])
        run = train(recipe, tmp_path / weights)
        assert antiphon.load(run.path).ranker.matcher.bias.item() == pytest.approx(bias, abs=0.2)
