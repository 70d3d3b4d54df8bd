"""``predict --lexicon``: listed inputs are answered from the file, others by the run."""

import json

import pytest

import antiphon as package
from tests.toy import TOY


@pytest.fixture(scope="module")
def lowercase_rules(tmp_path_factory):
    """Suffix rules of lower-cased text."""

    from antiphon.recipe.recipe_file import find_recipe, load_recipe
    from antiphon.training.fit import train

    out = tmp_path_factory.mktemp("lexicon") / "run"
    settings = ["model.kind=suffix_rule", "data.lowercase=true", "data.nfc=true"]
    train(load_recipe(find_recipe("toy"), settings), out)
    return out


@pytest.fixture
def lexicon(tmp_path):
    path = tmp_path / "lexicon.tsv"
    path.write_text("badu\tOne\nki\ttwo\n\nbadu\tthree\nbadu\tOne\n", encoding="utf-8")
    return path


def test_listed_inputs_are_answered_from_the_file_and_marked(toy_run, lexicon, antiphon):
    result = antiphon("predict", toy_run, "--lexicon", lexicon, stdin=b"badu\ndagi\n\nki\n")
    assert result.out == "One\ndaagiin\n\ntwo\n"
    assert result.err == f"antiphon: 2 inputs answered from {lexicon}\n"
    found = antiphon("predict", toy_run, "--lexicon", lexicon, "--format", "jsonl", stdin=b"badu\ndagi\n").out
    listed, asked = map(json.loads, found.splitlines())
    assert (listed["origin"], listed["probability"], listed["log_probability"]) == ("lexicon", None, None)
    assert [candidate["text"] for candidate in listed["nbest"]] == ["One", "three"]
    assert asked["origin"] == "model"
    assert asked["probability"] > 0
    lines = antiphon("predict", toy_run, "--lexicon", lexicon, "--nbest", "1", stdin=b"badu\n").out
    assert lines == "1\t\tOne\n1\t\tthree\n"


def test_the_steps_of_the_run_apply_to_what_is_listed(lowercase_rules, tmp_path, antiphon):
    lexicon = tmp_path / "lexicon.tsv"
    lexicon.write_text("Cafe\u0301\tKAFFEE\n", encoding="utf-8")
    assert antiphon("predict", lowercase_rules, "--lexicon", lexicon, stdin="CAFÉ\n".encode()).out == "KAFFEE\n"


def test_a_file_of_more_inputs_than_are_held_at_once(lowercase_rules, lexicon):
    model = package.load(lowercase_rules)
    sources = ["badu", "dagi"] * 1500
    found = model.predict(sources, lexicon=lexicon)
    assert [each.origin for each in found] == ["lexicon", "model"] * 1500


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no pairs, expected lines of source<TAB>target"),
        (b"one\n", "1 column, expected source<TAB>target"),
        (b"\xff\tx\n", "not UTF-8"),
    ],
)
def test_what_is_no_lexicon_is_refused(toy_run, tmp_path, antiphon, content, message):
    path = tmp_path / "lexicon.tsv"
    path.write_bytes(content)
    refused = antiphon("predict", toy_run, "--lexicon", path, stdin=b"badu\n")
    assert refused.status == 2
    assert message in refused.err


def test_a_lexicon_without_features_is_refused_where_the_run_reads_them(tmp_path, antiphon):
    train = tmp_path / "train.tsv"
    train.write_text("".join(line + "\tN;SG\n" for line in (TOY / "dev.tsv").read_text().splitlines()))
    settings = ["model.kind=suffix_rule", f"data.train={train}", f"data.dev={train}"]
    arguments = [part for setting in settings for part in ("--set", setting)]
    assert antiphon("train", "inflection", *arguments, "--out", tmp_path / "run").status == 0
    (tmp_path / "lexicon.tsv").write_text("badu\tx\n")
    refused = antiphon("predict", tmp_path / "run", "--lexicon", tmp_path / "lexicon.tsv", stdin=b"badu\tN;SG\n")
    assert refused.status == 2
    assert "lexicon.tsv:1: no features, but the model has some, expected" in refused.err
