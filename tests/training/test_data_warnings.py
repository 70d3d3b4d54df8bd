"""Data that are probably not what the recipe expects, each with its warning before training."""

import unicodedata

import pytest

from antiphon.recipe.recipe_file import make_recipe
from antiphon.torch_free.readers import Pair
from antiphon.training.checks import data_warnings
from tests.toy import inflect, words, write_pairs

WORDS = list(dict.fromkeys(words(80)))
G2P = {"data.source_tokens": "chars", "data.target_tokens": "words"}
TAGS = ("N;SG", "N;PL")


def pairs_of(rows):
    return [Pair(row[0], row[1], tuple(row[2:]), f"file:{number}") for number, row in enumerate(rows, 1)]


def warnings_of(settings, train, dev=()):
    return list(data_warnings(make_recipe({}, settings), pairs_of(train), pairs_of(dev)))


def spaced(word):
    return " ".join(inflect(word))


@pytest.mark.parametrize(
    ("settings", "rows", "cure"),
    [
        (G2P, [(word, inflect(word)) for word in WORDS], "data.target_tokens=chars"),
        ({"data.source_tokens": "words"}, [(word, spaced(word)) for word in WORDS], "data.source_tokens=chars"),
        (G2P, [(spaced(word), word) for word in WORDS], "data.swap=true with data.source_tokens=words"),
        (
            {"data.features": True},
            [(word, tag, inflect(word) + tag) for word in WORDS for tag in TAGS],
            'data.columns="source features target"',
        ),
        (
            {"data.features": True, "data.columns": "source features target"},
            [(word, tag, inflect(word) + tag) for word in WORDS for tag in TAGS],
            'data.columns="source target features"',
        ),
        ({}, [("Word", "Pronunciation"), ("a", "b")], "delete that line"),
        ({}, [("\u00e9t\u00e9", "b"), ("caf\u0065\u0301", "b")], "data.nfc=true"),
    ],
)
def test_data_that_do_not_suit_the_recipe_are_named_with_their_cure(settings, rows, cure):
    (warning,) = warnings_of(settings, rows)
    assert cure in warning


def test_dev_pairs_that_are_training_pairs_are_counted():
    rows = [(word, inflect(word)) for word in WORDS]
    (warning,) = warnings_of({}, rows, [*rows[:10], *((f"x{word}", word) for word in WORDS[:10])])
    assert "10 of 20 dev pairs are training pairs too" in warning


@pytest.mark.parametrize(
    ("settings", "rows"),
    [
        (G2P, [(word, spaced(word)) for word in WORDS]),
        (G2P, [(word, "noun" if word < "d" else "verb") for word in WORDS]),
        ({"data.features": True}, [(word, inflect(word) + tag, tag) for word in WORDS for tag in TAGS]),
        ({}, [(word, unicodedata.normalize("NFD", f"{word}é")) for word in WORDS]),
        ({"data.nfc": True}, [("é", "b"), ("e\u0301", "b")]),
        ({"model.kind": "language_model"}, [("", inflect(word)) for word in WORDS]),
    ],
)
def test_data_as_expected_have_no_warning(settings, rows):
    assert warnings_of(settings, rows, [("other", "pair")]) == []


@pytest.mark.parametrize("options", [["--dry-run"], ["--set", "model.kind=suffix_rule"]])
def test_training_and_a_dry_run_warn_on_standard_error(tmp_path, antiphon, options):
    pairs = write_pairs(tmp_path / "pairs.tsv", 40)
    files = ["--set", f"data.train={pairs}", "--set", f"data.dev={pairs}"]
    result = antiphon("train", "inflection", *files, *options, "--out", tmp_path / "run")
    assert result.status == 0, result.err
    assert "warning: 40 of 40 dev pairs are training pairs too" in result.err
