"""What learns by counting is measured while training as evaluate measures it afterwards."""

import sys

import pytest

from antiphon.api.model import load
from antiphon.exceptions import InstallError
from antiphon.recipe.recipe_file import load_recipe
from antiphon.torch_free.readers import read_pairs
from antiphon.training.fit import train
from tests.toy import words, write_questions, write_vectors


def write_sentences(path, number, seed):
    """Sentences whose last word is doubled, so that a suffix rule gets some of them right."""
    drawn = words(3 * number, seed)
    rows = [drawn[n : n + 3] for n in range(0, len(drawn), 3)]
    path.write_text("".join(f"{' '.join(row)}\t{' '.join([*row, row[-1][-1] * 2])}\n" for row in rows))


@pytest.mark.parametrize("tokens", ["chars", "words", "sentencepiece"])
def test_suffix_rules_over_any_tokens_log_what_evaluate_says(tmp_path, tokens):
    write_sentences(tmp_path / "train.tsv", 200, 1)
    write_sentences(tmp_path / "dev.tsv", 30, 2)
    (tmp_path / "recipe.toml").write_text(
        f'[data]\ntrain = "train.tsv"\ndev = "dev.tsv"\nsource_tokens = "{tokens}"\ntarget_tokens = "{tokens}"\n'
        'sentencepiece_size = 60\n[model]\nkind = "suffix_rule"\n[train]\ndev_metric = "accuracy"\n'
    )
    run = train(load_recipe(tmp_path / "recipe.toml"), tmp_path / "run")
    measured = load(run.path).evaluate(list(read_pairs(tmp_path / "dev.tsv"))).metrics
    assert {f"dev_{name}": score.value for name, score in measured.items()} == {
        name: value for name, value in run.metrics().items() if name.startswith("dev_")
    }
    if tokens == "words":
        assert measured["bleu"].value > 10


def test_the_command_trains_what_has_no_epochs_from_a_recipe_that_names_their_number(antiphon, tmp_path):
    write_questions(tmp_path / "questions.tsv", 5)
    (tmp_path / "recipe.toml").write_text(
        '[data]\ntrain = "questions.tsv"\ndev = "questions.tsv"\n[model]\nkind = "overlap"\n[train]\n'
        'dev_metric = "map"\nmax_epochs = 1\n'
    )
    done = antiphon("train", tmp_path / "recipe.toml", "--out", tmp_path / "run")
    assert done.status == 0, done.err
    assert "dev map" in done.err
    assert not (tmp_path / "run/log.csv").exists()


@pytest.mark.parametrize("kind", ["matcher", "overlap"])
def test_a_ranker_without_its_metrics_is_refused_before_training(tmp_path, monkeypatch, kind):
    for name in ("train", "dev"):
        write_questions(tmp_path / f"{name}.tsv", 5)
    write_vectors(tmp_path / "vectors.txt")
    (tmp_path / "recipe.toml").write_text(
        f'[data]\ntrain = "train.tsv"\ndev = "dev.tsv"\n[model]\nkind = "{kind}"\n[train]\ndev_metric = "map"\n'
    )
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    with pytest.raises(InstallError, match=rf"model\.kind = {kind} needs ir_measures, .*\[qa\]"):
        train(load_recipe(tmp_path / "recipe.toml"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
