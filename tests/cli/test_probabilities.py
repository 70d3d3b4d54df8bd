"""True probabilities through the real commands: lists, covers, samples."""

import json

import pytest

import antiphon as package
from tests.toy import inflect, words


def rows(out):
    return [line.split("\t") for line in out.splitlines()]


def test_nbest_as_text_has_line_probability_and_output(toy_run, antiphon):
    found = rows(antiphon("predict", toy_run, "--nbest", "3", stdin=b"badu\n\nki\n").out)
    assert [line for line, *_ in found] == ["1"] * 3 + ["3"] * 3
    assert found[0][2] == "baaduun"
    assert all(float(probability) <= 1.0 for _, probability, _ in found)
    as_json = antiphon("predict", toy_run, "--nbest", "3", "--format", "jsonl", stdin=b"badu\n").out
    listed = json.loads(as_json)["nbest"]
    assert [text for _, _, text in found[:3]] == [candidate["text"] for candidate in listed]
    assert float(found[0][1]) == pytest.approx(listed[0]["probability"], rel=1e-4)


def test_cover_gives_as_many_outputs_as_have_the_mass(toy_run, antiphon):
    model = package.load(toy_run)
    (everything,) = model.predict(["badukiga"], nbest=20)
    (covered,) = model.predict(["badukiga"], nbest=20, cover=0.9999)
    total = sum(candidate.probability for candidate in covered.nbest)
    assert total >= 0.9999 or len(covered.nbest) == len(everything.nbest)
    assert total - covered.nbest[-1].probability < 0.9999
    assert len(antiphon("predict", toy_run, "--cover", "0.5", stdin=b"badu\n").out.splitlines()) == 1


def test_cover_widens_the_beam_where_it_has_to_and_leaves_out_what_adds_nothing(toy_run, antiphon):
    inputs = b"badukiga\nzzzz\n"
    wide, widened = (
        rows(antiphon("predict", toy_run, "--cover", "0.9", *beam, stdin=inputs).out)
        for beam in (["--beam", "100"], ["--set", "search.beam=1"])
    )
    assert [(line, text) for line, _, text in widened] == [(line, text) for line, _, text in wide]
    assert all(float(probability) > 1e-6 for _, probability, _ in wide)
    assert len(package.load(toy_run).predict(["zzzz"], cover=0.9)[0].nbest) > 1


def test_a_note_says_where_the_outputs_have_too_little_probability(toy_run, antiphon):
    short = antiphon("predict", toy_run, "--cover", "0.99", "--beam", "1", stdin=b"zzzz\n")
    assert "1 input: outputs have less than 0.99 together; raise --nbest or --beam for more" in short.err
    assert "together" not in antiphon("predict", toy_run, "--cover", "0.1", stdin=b"badu\n").err


def test_samples_are_repeatable_and_come_with_probabilities(toy_run, antiphon):
    first, again, other = (
        antiphon("predict", toy_run, "--sample", "4", "--seed", seed, stdin=b"badu\n").out for seed in ("1", "1", "2")
    )
    assert first == again
    assert len(rows(first)) == len(rows(other)) == 4
    assert all(0.0 < float(probability) <= 1.0 for _, probability, _ in rows(first))


@pytest.mark.parametrize(
    "options", [["--cover", "0"], ["--cover", "1.5"], ["--cover", "nan"], ["--sample", "2", "--nbest", "3"]]
)
def test_impossible_wishes_are_refused_in_a_sentence(toy_run, antiphon, options):
    refused = antiphon("predict", toy_run, *options, stdin=b"badu\n")
    assert refused.status == 2
    assert "expected" in refused.err


def test_search_over_paths_is_a_setting_of_transducers(toy_run, tmp_path, antiphon):
    refused = antiphon(
        "train", "toy", "--set", "model.kind=attention", "--set", "search.over=paths", "--out", tmp_path / "x"
    )
    assert refused.status == 2
    assert 'search.over = "paths": kind attention has no alignments' in refused.err


def test_an_ensemble_is_a_run_like_any_other(toy_run, tmp_path, antiphon):
    out = tmp_path / "two"
    assert antiphon("ensemble", toy_run, toy_run, "--out", out).status == 0
    assert antiphon("info", out, "--json").status == 0
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("badu\tbaaduun\n", encoding="utf-8")
    alone, together = (json.loads(antiphon("evaluate", run, pairs, "--json").out)["metrics"] for run in (toy_run, out))
    for name, score in alone.items():
        assert together[name]["value"] == pytest.approx(score["value"], rel=1e-5)
    one, two = (antiphon("predict", run, "--nbest", "2", stdin=b"badu\n").out for run in (toy_run, out))
    assert [text for _, _, text in rows(one)] == [text for _, _, text in rows(two)]
    assert antiphon("compare", toy_run, out, pairs).status == 0


def test_runs_that_cannot_be_put_together_are_refused_by_name(toy_run, tmp_path, antiphon):
    refused = antiphon("ensemble", toy_run, "--out", tmp_path / "one")
    assert (refused.status, "expected 2 to 16" in refused.err) == (2, True)
    rules = tmp_path / "rules"
    assert antiphon("train", "toy", "--set", "model.kind=suffix_rule", "--out", rules).status == 0
    refused = antiphon("ensemble", toy_run, rules, "--out", tmp_path / "both")
    assert refused.status == 2
    assert "kind suffix_rule, expected one that predicts token by token" in refused.err


def test_an_ensemble_of_ensembles_is_refused(antiphon, toy_run, tmp_path):
    assert antiphon("ensemble", toy_run, toy_run, "--out", tmp_path / "two").status == 0
    refused = antiphon("ensemble", tmp_path / "two", toy_run, "--out", tmp_path / "three")
    assert (refused.status, len(refused.err.splitlines())) == (2, 1)
    assert "a run of kind ensemble, expected a single model; name its members instead" in refused.err
    assert not (tmp_path / "three").exists()


@pytest.mark.slow
def test_a_geometric_model_learns_the_toy_and_decodes_it(tmp_path, antiphon):
    run, settings = tmp_path / "geometric", ("--set", "model.transition=geometric", "--set", "train.max_epochs=40")
    assert antiphon("train", "toy", *settings, "--out", run).status == 0
    model = package.load(run)
    pairs = [(word, inflect(word)) for word in words(100, seed=77)]
    by_outputs = model.evaluate(pairs).metrics["accuracy"].value
    search = model.recipe.search.model_copy(update={"over": "paths"})
    model.recipe = model.recipe.model_copy(update={"search": search})
    by_paths = model.evaluate(pairs).metrics["accuracy"].value
    assert by_outputs > 60.0
    assert by_paths < by_outputs / 2
