"""Compressions keep the names and figures of their sentences, also those that training never saw."""

import csv
import json
import random
import shutil

import pytest

import antiphon as package
from antiphon.runs.combined_runs import combine_runs, ensemble_runs
from tests.sealing import seal_again
from tests.subprocesses import run_python

RECIPE = """
[data]
source_tokens = "words"
target_tokens = "words"
min_count = 3
[model]
encoder = "unidirectional"
hidden_size = 24
dropout = 0.0
[train]
learning_rate = 0.02
batch_size = 16
max_epochs = 3
passes = 5
dev_metric = "retained_f1"
[search]
beam = 3
"""
TRAIN = """
import sys
from antiphon.cli import main

folder, *runs = sys.argv[1:]
for run in runs:
    name, *settings = run.split(":")
    given = [word for setting in settings for word in ("--set", setting)]
    sys.argv = ["antiphon", "train", f"{folder}/recipe.toml", *given, "--out", f"{folder}/{name}"]
    try:
        main()
    except SystemExit as exit_:
        assert not exit_.code
"""
UNSEEN = "the old mill at Quendon was built in 1987 , they said ."
KEPT = "Quendon was built in 1987 ."


def write_pairs(path, number, seed):
    """Sentences about places and years, nearly every one of which occurs once."""
    draw, lines = random.Random(seed), []
    for _ in range(number):
        name = "".join(draw.choice("abdegikmostu") for _ in range(6)).title()
        year, thing = draw.randint(1000, 9999), draw.choice(["mill", "house", "bridge"])
        verb = draw.choice(["built", "sold", "closed"])
        lines.append(f"the old {thing} at {name} was {verb} in {year} , they said .\t{name} was {verb} in {year} .\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs that compress, of which the second is bidirectional, and two channels that expand."""
    folder = tmp_path_factory.mktemp("compression")
    write_pairs(folder / "train.tsv", 250, 1)
    write_pairs(folder / "dev.tsv", 30, 2)
    files = f'[data]\ntrain = "{folder}/train.tsv"\ndev = "{folder}/dev.tsv"\n'
    (folder / "recipe.toml").write_text(RECIPE.replace("[data]\n", files))
    channel = "data.swap=true:train.max_epochs=1:train.dev_metric=perplexity"
    bidirectional = f"two:data.vocab_from={folder}/one:model.encoder=bidirectional"
    run_python(
        TRAIN, folder, "one", bidirectional, f"channel:{channel}", f"copying-channel:{channel}:model.copy_words=true"
    )
    return folder


def test_a_compression_keeps_a_name_and_a_figure_that_training_never_saw(runs):
    for name in ("one", "two"):
        model = package.load(runs / name)
        assert model.recipe.model.copy_words
        assert not model.recipe.data.digits_to_hash
        assert model.predict([UNSEEN])[0].text == KEPT


def test_two_unknown_words_of_a_sentence_are_not_confused(runs):
    model = package.load(runs / "one")
    assert model.predict([UNSEEN.replace("Quendon", "4711")])[0].text == KEPT.replace("Quendon", "4711")
    right, wrong = model.score([(UNSEEN, KEPT), (UNSEEN, KEPT.replace("1987", "Quendon"))])
    assert right > wrong + 3


def test_streams_ensembles_and_aligned_outputs_are_the_same_compression(runs, tmp_path):
    model = package.load(runs / "one")
    for policy in ("greedy", "beam"):
        stream = model.stream(policy=policy)
        assert [word for token in UNSEEN.split() for word in stream.read(token)] + stream.finish() == KEPT.split()
    ensemble_runs([runs / "one", runs / "two"], tmp_path / "both", force=False)
    assert package.load(tmp_path / "both").predict([UNSEEN])[0].text == KEPT
    aligned = package.load(runs / "two").predict([UNSEEN], align=True)[0]
    assert aligned.text == KEPT
    assert UNSEEN.split()[aligned.nbest[0].rows[0]] == "Quendon"


def test_a_noisy_channel_writes_the_same_compression_and_is_tuned_by_retained_tokens(antiphon, runs, tmp_path):
    out = tmp_path / "combined"
    combine_runs(runs / "one", runs / "channel", None, out, {"weights": (1.0, 0.2, 0.0, 0.0)}, force=False)
    model = package.load(out)
    assert model.predict([UNSEEN])[0].text == KEPT
    stream = model.stream()
    assert [word for token in UNSEEN.split() for word in stream.read(token)] + stream.finish() == KEPT.split()
    tuned = antiphon("tune", out, runs / "dev.tsv", "--metric", "retained_f1", "--rounds", "1", "--nbest", "4")
    assert tuned.status == 0, tuned.err
    assert "retained_f1" in tuned.err


def test_a_channel_model_does_not_copy_unless_asked_and_is_then_refused(antiphon, runs, tmp_path):
    assert package.load(runs / "channel").recipe.model.copy_words is False
    arguments = ("--direct", runs / "one", "--channel", runs / "copying-channel", "--out", tmp_path / "refused")
    refused = antiphon("combine", *arguments)
    assert refused.status == 2
    assert "channel: copies words, expected one trained with model.copy_words=false" in refused.err


def test_a_run_made_before_words_could_be_copied_predicts_the_same(runs, tmp_path):
    old = shutil.copytree(runs / "channel", tmp_path / "old")
    lines = (old / "recipe.toml").read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith("copy_words")]
    assert len(kept) == len(lines) - 1
    (old / "recipe.toml").write_text("".join(kept))
    seal_again(old)
    before, after = package.load(runs / "channel"), package.load(old)
    assert after.recipe.model.copy_words is None
    assert after.predict([KEPT, "Zoe"], nbest=3) == before.predict([KEPT, "Zoe"], nbest=3)
    assert after.score([(KEPT, UNSEEN)]) == before.score([(KEPT, UNSEEN)])


def test_the_epoch_is_selected_by_retained_tokens_as_evaluate_counts_them(runs):
    with (runs / "one" / "log.csv").open() as log:
        measured = [float(row["dev_retained_f1"]) for row in csv.DictReader(log)]
    pairs = [tuple(line.split("\t")) for line in (runs / "dev.tsv").read_text(encoding="utf-8").splitlines()]
    evaluation = package.load(runs / "one").evaluate(pairs)
    assert max(measured) == pytest.approx(evaluation.metrics["retained_f1"].value)
    assert max(measured) > 95


def test_compare_has_the_metrics_of_compression(antiphon, runs):
    result = antiphon("compare", runs / "one", runs / "two", runs / "dev.tsv", "--format", "json")
    assert result.status == 0, result.err
    for system in json.loads(result.out)["systems"]:
        assert system["metrics"].keys() >= {"retained_f1", "compression_rate", "reference_compression_rate"}


def test_copying_is_refused_where_tokens_are_not_words(antiphon, runs, tmp_path):
    settings = ("--set", "data.target_tokens=chars", "--set", "model.copy_words=true")
    refused = antiphon("train", runs / "recipe.toml", *settings, "--out", tmp_path / "never")
    assert refused.status == 2
    assert "model.copy_words = true with tokens that are words and chars, expected" in refused.err
