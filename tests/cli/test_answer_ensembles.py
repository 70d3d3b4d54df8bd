"""Ensembles of runs that rank answers, and encoders that read question and sentence together, by real commands."""

import json
import shutil

import numpy as np
import pytest

import antiphon as package
from antiphon.exceptions import RunError
from antiphon.ranking.saved_rankers import mean_log_odds
from tests.cli.test_answer_selection import arguments_of, evaluate, toy, train
from tests.encoders import write_encoder
from tests.sealing import seal_again

__all__ = ["toy"]

QUESTION = "which city ?"
SENTENCES = ["the old cat house", "near oslo river", "the red door"]


@pytest.fixture(scope="module")
def joint(toy):
    """A trained cross-encoder with words in common."""
    write_encoder(toy / "wide", initializer_range=0.5, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    settings = ["model.sentence=pretrained", f"model.pretrained={toy / 'wide'}", "model.frozen=false"]
    settings += ["model.reading=joint", "model.overlap=true", "train.optimiser=adam", "train.learning_rate=0.005"]
    return train(toy, "joint", *settings, "train.warmup_updates=10", "train.max_epochs=5", "train.passes=6")


@pytest.fixture(scope="module")
def members(toy, joint):
    """Runs of three sentence models, one with words in common."""
    attentive = train(toy, "attentive", "train.max_epochs=4", "model.overlap=true")
    bigram = train(toy, "bigram", "train.max_epochs=2", "model.sentence=bigram")
    return [attentive, bigram, joint]


@pytest.fixture(scope="module")
def ensemble(toy, members):
    from antiphon.ranking.saved_rankers import ensemble_rankers

    return ensemble_rankers(members, toy / "ensemble", "probabilities", force=False).path


def probabilities(run):
    ranked = package.load(run).rank(QUESTION, SENTENCES)
    return [each.probability for each in sorted(ranked, key=lambda each: each.index)]


def test_a_cross_encoder_learns_toy_questions_and_says_what_it_looks_at(antiphon, toy, joint):
    assert evaluate(antiphon, joint, toy / "test.tsv")["map"]["value"] > 0.9
    explained = antiphon("predict", joint, toy / "test.tsv", "--explain")
    best = json.loads(explained.out.splitlines()[0])["ranking"][0]
    assert [word for word, _ in best["attention"]] == best["sentence"].split()
    assert sum(weight for _, weight in best["attention"]) == pytest.approx(1, abs=1e-4)


def test_a_new_question_is_ranked_by_a_cross_encoder_without_its_encoder_folder(toy, joint, tmp_path):
    moved, encoder = shutil.copytree(joint, tmp_path / "moved"), toy / "wide"
    encoder.rename(toy / "hidden")
    try:
        ranked = package.load(moved).rank(QUESTION, SENTENCES, explain=True)
    finally:
        (toy / "hidden").rename(encoder)
    assert ranked[0].sentence == SENTENCES[1]
    assert [word for word, _ in ranked[0].attention] == SENTENCES[1].split()


@pytest.mark.parametrize("settings", [["model.sentence=lstm"], ["model.sentence=pretrained", "model.frozen=true"]])
def test_only_encoders_that_are_trained_read_both_texts_together(antiphon, toy, tmp_path, settings):
    result = antiphon(*arguments_of(toy, tmp_path / "run", "model.reading=joint", *settings))
    assert result.status == 2
    assert 'expected model.sentence = "pretrained" and model.frozen = false' in result.err


def test_a_missing_encoder_is_refused_before_training(antiphon, toy, tmp_path):
    settings = ["model.sentence=pretrained", "model.frozen=false", "model.pretrained=nowhere"]
    result = antiphon(*arguments_of(toy, tmp_path / "run", "model.reading=joint", *settings))
    assert result.status == 2
    assert "nowhere: no sentence encoder, expected a folder" in result.err
    assert not (tmp_path / "run").exists()


def test_an_ensemble_averages_the_probabilities_of_its_members(members, ensemble):
    expected = np.mean([probabilities(member) for member in members], 0)
    assert probabilities(ensemble) == pytest.approx(expected)
    assert package.load(ensemble).kind == "ranking_ensemble"


def test_an_ensemble_can_average_log_odds(antiphon, members, tmp_path):
    out = tmp_path / "logs"
    assert antiphon("ensemble", *members[:2], "--mean", "logs", "--out", out).status == 0
    odds = np.mean([[np.log(p / (1 - p)) for p in probabilities(member)] for member in members[:2]], 0)
    assert probabilities(out) == pytest.approx(1 / (1 + np.exp(-odds)))


def test_an_ensemble_is_a_run_like_any_other(antiphon, toy, members, ensemble, tmp_path):
    moved = shutil.copytree(ensemble, tmp_path / "moved")
    assert evaluate(antiphon, moved, toy / "test.tsv")["map"]["value"] > 0.9
    lines = antiphon("predict", moved, toy / "test.tsv").out.splitlines()
    assert len(lines) == 120
    best = json.loads(antiphon("predict", moved, toy / "test.tsv", "--explain").out.splitlines()[0])["ranking"][0]
    assert [word for word, _ in best["attention"]] == best["sentence"].split()
    assert sum(weight for _, weight in best["attention"]) == pytest.approx(1, abs=1e-4)
    compared = antiphon("compare", moved, members[0], toy / "test.tsv")
    assert compared.status == 0
    assert json.loads(antiphon("info", moved, "--json").out)["kind"] == "ranking_ensemble"


def test_an_ensemble_that_is_replaced_leaves_no_member_behind(antiphon, members, ensemble, tmp_path):
    out = shutil.copytree(ensemble, tmp_path / "ensemble")
    assert antiphon("ensemble", *members[:2], "--out", out).status == 2
    assert antiphon("ensemble", *members[:2], "--out", out, "--force").status == 0
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == ["member-1", "member-2"]


def test_what_does_not_rank_is_no_member_of_an_ensemble_that_does(antiphon, toy, members, toy_run, tmp_path):
    counted = train(toy, "counted", "model.kind=overlap")
    for other, kind in ((toy_run, "transducer"), (counted, "overlap")):
        refused = antiphon("ensemble", members[0], other, "--out", tmp_path / "both")
        assert refused.status == 2
        assert f"{other}: a run of kind {kind}, expected a matcher" in refused.err
    refused = antiphon("ensemble", toy_run, members[0], "--out", tmp_path / "both")
    assert f"{members[0]}: a run of kind matcher, expected one that predicts" in refused.err
    assert not (tmp_path / "both").exists()


def test_a_member_without_a_finished_epoch_is_refused_by_its_name(antiphon, members, tmp_path):
    stopped = shutil.copytree(members[0], tmp_path / "stopped", ignore=lambda *_: {"model.safetensors"})
    seal_again(stopped)
    refused = antiphon("ensemble", stopped, members[1], "--out", tmp_path / "both")
    assert refused.status == 2
    assert f"{stopped}: no model.safetensors yet, expected a run that finished at least one epoch" in refused.err
    assert not (tmp_path / "both").exists()


def test_an_ensemble_without_members_is_refused(ensemble, tmp_path):
    empty = shutil.copytree(ensemble, tmp_path / "empty", ignore=lambda _, names: [n for n in names if "member" in n])
    seal_again(empty)
    with pytest.raises(RunError, match="no members in it"):
        package.load(empty)


def test_probabilities_near_0_and_1_are_averaged_without_rounding():
    found = mean_log_odds(np.array([[50.0, -800.0, 2.0], [50.0, -802.0, 2.0]]))
    assert found == pytest.approx([50.0, -800 + np.log((1 + np.exp(-2)) / 2), 2.0])
