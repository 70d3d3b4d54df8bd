"""What a dry run says of training is what training then takes."""

import re

import pytest

from tests.toy import write_questions, write_recipe, write_vectors


@pytest.fixture
def recipe(tmp_path):
    train = "[train]\nmax_epochs = 1\npasses = 1\nema_decay = 0.9\n"
    return write_recipe(tmp_path, 60, 10, f"max_source_length = 5\n[model]\nhidden_size = 16\n{train}")


def everything_in(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_dry_run_says_what_training_will_take_and_leaves_nothing(antiphon, recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = everything_in(tmp_path)
    result = antiphon("train", recipe, "--dry-run", "--out", tmp_path / "run")
    assert result.status == 0, result.err
    train, dev, *settings, kind, length, parameters, time = result.err.splitlines()
    assert settings[0] == "settings that the recipe leaves unset:"
    assert any(re.fullmatch(r"  model\.dropout +0\.5 +\d+ training pairs, fewer than 5,000", line) for line in settings)
    assert re.fullmatch(r"about [\d.]+ s for one epoch, without validation", time)
    assert re.fullmatch(r"1 epoch of 2 updates \(each a pass over \d+ pairs\), patience 10", length)
    assert re.fullmatch(r"train: \d+ pairs, dropped: \d+ source too long", train)
    assert (dev, kind) == ("dev: 10 pairs", "transducer, on cpu:")
    assert everything_in(tmp_path) == before
    assert not (tmp_path / "run").exists()
    run = antiphon("train", recipe, "--out", tmp_path / "run")
    assert f"transducer: {parameters}" in run.err


def test_a_dry_run_does_not_touch_the_run_that_is_there(antiphon, recipe, tmp_path):
    assert antiphon("train", recipe, "--out", tmp_path / "run").status == 0
    before = everything_in(tmp_path)
    assert (
        antiphon("train", recipe, "--dry-run", "--out", tmp_path / "run", "--set", "model.kind=attention").status == 0
    )
    assert everything_in(tmp_path) == before


def test_a_dry_run_works_for_what_ranks_and_for_what_only_counts(antiphon, recipe, tmp_path):
    counted = ["--set", "model.kind=suffix_rule", "--set", "train.dev_metric=accuracy"]
    assert "learns by counting" in antiphon("train", recipe, "--dry-run", *counted).err
    write_questions(tmp_path / "q.tsv", 20)
    write_vectors(tmp_path / "vectors.txt")
    files = [f"data.{name}={tmp_path / 'q.tsv'}" for name in ("train", "dev")] + [
        f"data.vectors={tmp_path / 'vectors.txt'}"
    ]
    for weight in (0, 1):
        chosen = [*files, "train.dev_metric=map", f"train.listwise_weight={weight}"]
        settings = [part for setting in chosen for part in ("--set", setting)]
        result = antiphon("train", "answer-selection", "--dry-run", *settings)
        assert "per epoch" in result.err, result.err


def test_a_dry_run_refuses_what_training_would_refuse(antiphon, recipe, tmp_path):
    (tmp_path / "train.tsv").write_text("a\n")
    result = antiphon("train", recipe, "--dry-run")
    assert result.status == 2
    assert "train.tsv:1: 1 column" in result.err
