"""Few pairs and much unpaired text: the combination must beat the direct model, through the real commands."""

import json
import shutil

import pytest

import antiphon as package
from tests.lite.drawn_runs import inputs as drawn_inputs
from tests.lite.drawn_runs import write_run
from tests.sealing import seal_again
from tests.shared_folders import filled_once, run_command
from tests.toy import inflect, words, write_pairs

SMALL = (
    "[model]\nhidden_size = 48\ndropout = 0.2\n"
    "[train]\nlearning_rate = 0.01\nmax_epochs = 12\npasses = 1\n[search]\nbeam = 8\n"
)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """A direct model, a channel model and a language model of 60 pairs and 3,000 unpaired outputs."""
    return filled_once(tmp_path_factory, "parts", train_parts)


def train_parts(folder):
    write_pairs(folder / "train.tsv", 60, seed=1)
    write_pairs(folder / "dev.tsv", 60, seed=2)
    write_pairs(folder / "test.tsv", 150, seed=3)
    (folder / "more.txt").write_text("".join(f"{inflect(word)}\n" for word in words(3000, seed=4)))
    (folder / "recipe.toml").write_text(SMALL)
    own = {
        "direct": ["train.max_epochs=25"],
        "online": ["train.max_epochs=25", "model.encoder=unidirectional"],
        "channel": ["train.max_epochs=25", "data.swap=true", "model.encoder=unidirectional"],
        "lm": [
            "model.kind=language_model",
            "train.max_epochs=4",
            f'data.unpaired=["{folder / "more.txt"}"]',
            f"data.vocab_from={folder / 'direct'}",
        ],
    }
    for name, settings in own.items():
        settings = [f"data.train={folder / 'train.tsv'}", f"data.dev={folder / 'dev.tsv'}", *settings]
        arguments = [part for setting in settings for part in ("--set", setting)]
        run_command("train", folder / "recipe.toml", *arguments, "--out", folder / name)


@pytest.fixture
def combined(antiphon, parts, tmp_path):
    out = tmp_path / "combined"
    arguments = ["--direct", parts / "direct", "--channel", parts / "channel", "--lm", parts / "lm", "--out", out]
    result = antiphon("combine", *arguments, "--set", "search.proposals=16", "--beam", "8")
    assert result.status == 0, result.err
    return out


def accuracy(antiphon, run, file):
    return json.loads(antiphon("evaluate", run, file, "--json").out)["metrics"]["accuracy"]["value"]


def test_unpaired_text_makes_a_scarce_model_better(antiphon, parts, combined):
    assert antiphon("tune", combined, parts / "dev.tsv", "--rounds", "3", "--nbest", "16").status == 0
    assert (
        accuracy(antiphon, combined, parts / "test.tsv") > accuracy(antiphon, parts / "direct", parts / "test.tsv") + 2
    )


def test_tuning_from_bad_weights_does_not_end_below_the_direct_model(antiphon, parts, tmp_path):
    models = ["--direct", parts / "direct", "--channel", parts / "channel", "--lm", parts / "lm"]
    bad = ["--weights", "0.01,0.01,1,-4", "--beam", "8", "--set", "search.proposals=16"]
    assert antiphon("combine", *models, *bad, "--out", tmp_path / "bad").status == 0
    assert antiphon("tune", tmp_path / "bad", parts / "dev.tsv", "--rounds", "2").status == 0
    tuned = json.loads((tmp_path / "bad/metrics.json").read_text())["tuned"]
    assert tuned["before"] < tuned["after"]
    assert tuned["after"] >= accuracy(antiphon, parts / "direct", parts / "dev.tsv")


def test_the_thesis_search_over_cells_is_a_setting_of_combined_runs(antiphon, parts, combined, tmp_path):
    models = ["--direct", parts / "direct", "--channel", parts / "channel", "--lm", parts / "lm"]
    cells = ["--set", "search.over=cells", "--set", "search.beam=8", "--set", "search.proposals=16"]
    assert antiphon("combine", *models, *cells, "--out", tmp_path / "cells").status == 0
    text = "".join(f"{word}\n" for word in words(20, seed=5)).encode()
    printed = antiphon("predict", tmp_path / "cells", stdin=text).out
    assert printed == antiphon("predict", combined, "--set", "search.over=cells", stdin=text).out
    ours = antiphon("predict", combined, stdin=text).out
    assert sum(one == other for one, other in zip(printed.splitlines(), ours.splitlines(), strict=True)) >= 15
    refused = antiphon("predict", parts / "direct", "--set", "search.over=cells", stdin=text)
    assert refused.status == 2
    assert 'search.over = "cells": kind transducer has no channel model, expected a noisy channel' in refused.err


def test_a_run_that_is_combined_of_one_that_searches_paths_searches_outputs(antiphon, parts, tmp_path):
    shutil.copytree(parts / "direct", tmp_path / "direct")
    recipe = (tmp_path / "direct/recipe.toml").read_text()
    (tmp_path / "direct/recipe.toml").write_text(recipe.replace('over = "outputs"', 'over = "paths"'))
    seal_again(tmp_path / "direct")
    result = antiphon("combine", "--direct", tmp_path / "direct", "--lm", parts / "lm", "--out", tmp_path / "both")
    assert result.status == 0, result.err
    search = json.loads(antiphon("info", tmp_path / "both", "--json").out)["recipe"]["search"]
    assert search["over"] == "outputs"
    assert search["weights"][1] == 0


@pytest.fixture
def with_rules(antiphon, tmp_path):
    """A drawn direct model with suffix rules, combined with a channel model and a language model that only mislead."""
    runs = {
        "--direct": write_run(tmp_path / "direct", "rules_beside"),
        "--channel": write_run(tmp_path / "channel", "inflection", swap=True, seed=1),
        "--lm": write_run(tmp_path / "lm", "language_model", seed=2, target_tokens="chars"),
    }
    arguments = [part for pair in runs.items() for part in pair]
    assert antiphon("combine", *arguments, "--weights", "0.1,1,1,0", "--out", tmp_path / "all").status == 0
    return tmp_path / "all"


def write_answers(run, path, ranks):
    """Pairs whose targets are the outputs of a run at these ranks, one after the other."""
    sources = [(text, features) for text, features in drawn_inputs("rules_beside") if text]
    found = package.load(run).predict(sources, nbest=3)
    lines = [
        f"{text}\t{prediction.nbest[ranks[place % len(ranks)]].text}\t{features}\n"
        for place, ((text, features), prediction) in enumerate(zip(sources, found, strict=True))
    ]
    path.write_text("".join(lines))
    return path


def test_the_direct_model_stays_alone_where_nothing_helps(antiphon, with_rules, tmp_path):
    dev = write_answers(tmp_path / "direct", tmp_path / "dev.tsv", ranks=[0])
    result = antiphon("tune", with_rules, dev, "--rounds", "2", "--nbest", "8")
    assert "direct model" in result.err
    tuned = json.loads((with_rules / "metrics.json").read_text())["tuned"]
    assert (tuned["direct"], tuned["after"], tuned["weights"]) == (100.0, 100.0, [1.0, 0.0, 0.0, 0.0])
    assert tuned["before"] < 100
    alone, together = (
        package.load(run).predict(drawn_inputs("rules_beside"), nbest=3) for run in (tmp_path / "direct", with_rules)
    )
    for one, other in zip(alone, together, strict=True):
        assert [(each.text, each.log_probability) for each in one.nbest] == [
            (each.text, each.parts[0]) for each in other.nbest
        ]


def test_a_combination_of_the_direct_model_alone_is_tuned_from_the_start(antiphon, with_rules, tmp_path):
    for rank in (0, 1):
        dev = write_answers(tmp_path / "direct", tmp_path / "dev.tsv", [rank])
        assert antiphon("tune", with_rules, dev, "--rounds", "2", "--nbest", "8").status == 0
    tuned = json.loads((with_rules / "metrics.json").read_text())["tuned"]
    assert tuned["weights_before"] == [1.0, 0.5, 0.5, 0.5]


@pytest.mark.parametrize("ranks", [[0, 1], [2, 1, 0]])
def test_a_tuned_combination_is_never_below_its_direct_model_on_dev(antiphon, with_rules, tmp_path, ranks):
    dev = write_answers(tmp_path / "direct", tmp_path / "dev.tsv", ranks)
    direct = accuracy(antiphon, tmp_path / "direct", dev)
    assert antiphon("tune", with_rules, dev, "--rounds", "2", "--nbest", "8").status == 0
    assert accuracy(antiphon, with_rules, dev) >= direct > 0


def test_tuning_is_written_into_the_run_and_shown(antiphon, parts, combined):
    result = antiphon("tune", combined, parts / "dev.tsv", "--rounds", "2", "--nbest", "8", "--metric", "accuracy")
    assert "round 1: accuracy" in result.err
    assert "before" in result.err
    assert "after" in result.err
    tuned = json.loads((combined / "metrics.json").read_text())["tuned"]
    assert tuned["after"] >= tuned["before"]
    assert tuple(tuned["weights"]) == tuple(package.load(combined).weights)


def test_the_combined_run_moves_as_one_folder(antiphon, parts, combined, tmp_path):
    before = antiphon("predict", combined, parts / "test.tsv").out
    moved = shutil.move(combined, tmp_path / "elsewhere")
    assert antiphon("predict", moved, parts / "test.tsv").out == before
    assert json.loads(antiphon("info", moved, "--json").out)["kind"] == "noisy_channel"


def test_every_candidate_shows_its_parts(antiphon, combined):
    row = json.loads(antiphon("predict", combined, "--format", "jsonl", "--nbest", "3", stdin=b"badu\n").out)
    for candidate in row["nbest"]:
        parts = candidate["parts"]
        assert parts.keys() == {"direct", "channel", "language_model", "length"}
        of_models = parts["direct"] + 0.5 * (parts["channel"] + parts["language_model"])
        assert candidate["score"] == pytest.approx(of_models + 0.5 * parts["length"])


def test_compare_takes_a_combined_run(antiphon, parts, combined):
    result = antiphon("compare", parts / "direct", combined, parts / "test.tsv", "--format", "json")
    assert [system["kind"] for system in json.loads(result.out)["systems"]] == ["transducer", "noisy_channel"]


@pytest.mark.parametrize("left_out", ["--channel", "--lm"])
def test_a_part_may_be_left_out(antiphon, parts, tmp_path, left_out):
    kept = {"--channel": parts / "channel", "--lm": parts / "lm"}
    del kept[left_out]
    arguments = [part for pair in kept.items() for part in pair]
    assert antiphon("combine", "--direct", parts / "direct", *arguments, "--out", tmp_path / "x").status == 0
    assert package.load(tmp_path / "x").weights[1 if left_out == "--channel" else 2] == 0.0
    assert antiphon("predict", tmp_path / "x", stdin=b"badu\n").out.strip()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--channel", "direct"], "channel: a bidirectional encoder, expected"),
        (["--lm", "direct"], "lm: a run of kind transducer, expected a language_model"),
        (["--channel", "lm"], "channel: a run of kind language_model, expected a transducer"),
        (["--weights", "1,2"], "--weights 1,2: expected four numbers"),
    ],
)
def test_parts_that_do_not_fit_are_refused_by_name(antiphon, parts, tmp_path, options, message):
    arguments = [parts / word if (parts / word).exists() else word for word in options]
    result = antiphon("combine", "--direct", parts / "direct", *arguments, "--out", tmp_path / "x")
    assert result.status == 2
    assert message in result.err
    assert not (tmp_path / "x").exists()


def test_a_language_model_with_other_tokens_is_refused(antiphon, parts, tmp_path):
    (tmp_path / "other.txt").write_text("abc\nabd\n")
    settings = [
        "model.kind=language_model",
        f"data.train={tmp_path / 'other.txt'}",
        f"data.dev={tmp_path / 'other.txt'}",
    ]
    arguments = [part for setting in [*settings, "train.max_epochs=1"] for part in ("--set", setting)]
    assert antiphon("train", parts / "recipe.toml", *arguments, "--out", tmp_path / "lm").status == 0
    result = antiphon("combine", "--direct", parts / "direct", "--lm", tmp_path / "lm", "--out", tmp_path / "x")
    assert result.status == 2
    assert "output tokens of the direct model are not in its vocabulary" in result.err


@pytest.fixture
def train_small(antiphon, tmp_path):
    """Trains one epoch on pairs of words and features, in which some tokens look like features."""

    def run(name, pairs, *settings):
        (tmp_path / f"{name}.tsv").write_text("".join(f"{line}\n" for line in pairs))
        given = [f"data.{side}={tmp_path / f'{name}.tsv'}" for side in ("train", "dev")]
        given += ["data.source_tokens=words", "data.target_tokens=words", "train.max_epochs=1", "model.hidden_size=4"]
        arguments = [part for setting in (*given, *settings) for part in ("--set", setting)]
        (tmp_path / "small.toml").write_text("")
        result = antiphon("train", tmp_path / "small.toml", *arguments, "--out", tmp_path / name)
        assert result.status == 0, result.err
        return tmp_path / name

    return run


@pytest.mark.parametrize("side", ["input", "output"])
def test_a_token_in_brackets_is_no_feature_because_of_them(antiphon, train_small, tmp_path, side):
    laughing = "a [laughter]\tb\tN" if side == "input" else "a\tb [laughter]\tN"
    direct = train_small("direct", ["a\tb\tN", laughing])
    swapped = "data.swap=true", "model.encoder=unidirectional"
    alike = train_small("alike", ["a\tb\tN", laughing], *swapped)
    other = train_small("other", ["a\tb\tN"], *swapped)
    assert antiphon("combine", "--direct", direct, "--channel", alike, "--out", tmp_path / "fits").status == 0
    result = antiphon("combine", "--direct", direct, "--channel", other, "--out", tmp_path / "x")
    assert result.status == 2
    assert f"1 {side} tokens of the direct model are not in its vocabulary ('[laughter]')" in result.err


def test_features_that_the_channel_does_not_know_are_refused(antiphon, train_small, tmp_path):
    direct = train_small("direct", ["a\tb\tN", "a\tb\tV"])
    channel = train_small("channel", ["a\tb\tN"], "data.swap=true", "model.encoder=unidirectional")
    result = antiphon("combine", "--direct", direct, "--channel", channel, "--out", tmp_path / "x")
    assert result.status == 2
    assert "1 feature tokens of the direct model are not in its vocabulary ('V')" in result.err


def test_a_combination_never_replaces_a_run_that_it_is_made_of(antiphon, parts, tmp_path):
    runs = {name: shutil.copytree(parts / name, tmp_path / name) for name in ("direct", "lm")}
    before = {path: path.read_bytes() for run in runs.values() for path in run.rglob("*") if path.is_file()}
    combine = ["combine", "--direct", runs["direct"], "--lm", runs["lm"], "--out"]
    ensemble = ["ensemble", runs["direct"], runs["direct"], "--out"]
    for command in (
        [*combine, runs["direct"]],
        [*combine, runs["lm"]],
        [*combine, runs["direct"] / "inside"],
        [*ensemble, runs["direct"]],
    ):
        refused = antiphon(*command, "--force")
        assert refused.status == 2
        assert f"{command[-1]}: in the run itself, expected another --out" in refused.err
    assert {path: path.read_bytes() for run in runs.values() for path in run.rglob("*") if path.is_file()} == before


def test_the_direct_model_may_be_an_ensemble(antiphon, parts, combined, tmp_path):
    assert antiphon("ensemble", parts / "direct", parts / "direct", "--out", tmp_path / "two").status == 0
    arguments = ["--direct", tmp_path / "two", "--channel", parts / "channel", "--lm", parts / "lm", "--out"]
    made = antiphon("combine", *arguments, tmp_path / "noisy", "--set", "search.proposals=16", "--beam", "8")
    assert made.status == 0, made.err
    inputs = "\n".join(words(10, seed=5)).encode()
    alone, together = (antiphon("predict", run, stdin=inputs).out for run in (combined, tmp_path / "noisy"))
    assert alone == together
    assert "cannot stream" in antiphon("stream", tmp_path / "noisy").err


def test_only_a_combined_run_can_be_tuned(antiphon, parts):
    result = antiphon("tune", parts / "direct", parts / "dev.tsv")
    assert result.status == 2
    assert "has no weights to tune" in result.err


def test_a_combined_run_with_a_unidirectional_direct_model_writes_while_it_reads(antiphon, parts, combined, tmp_path):
    out = tmp_path / "online"
    arguments = ["--direct", parts / "online", "--channel", parts / "channel", "--lm", parts / "lm", "--out", out]
    assert antiphon("combine", *arguments, "--set", "search.proposals=16", "--beam", "8").status == 0
    inputs = words(15, seed=11)
    predicted, streamed = (
        antiphon(verb, out, stdin="\n".join(inputs).encode()).out.split() for verb in ("predict", "stream")
    )
    # Both prune, by different rules; only wide ones must agree (tests/decode). Neither may be much worse.
    assert sum(one == other for one, other in zip(predicted, streamed, strict=True)) >= 8
    right = [
        sum(text == inflect(word) for text, word in zip(each, inputs, strict=True)) for each in (predicted, streamed)
    ]
    assert right[1] >= right[0] - 2
    few = tmp_path / "few.tsv"
    few.write_text("".join((parts / "test.tsv").read_text().splitlines(keepends=True)[:12]))
    metrics = json.loads(antiphon("evaluate", out, few, "--online", "--json").out)["metrics"]
    assert metrics["AL"]["value"] < 6
    assert "with the policy greedy, expected beam" in antiphon("stream", out, "--policy", "greedy").err
    assert "model.encoder=unidirectional" in antiphon("stream", combined).err


def test_vocabularies_that_are_not_the_direct_models_are_refused(combined, antiphon):
    vocab = combined / "source.vocab"
    vocab.write_text(vocab.read_text(encoding="utf-8") + "Q\n", encoding="utf-8")
    seal_again(combined)
    refused = antiphon("predict", combined, stdin=b"Q\n")
    assert (refused.status, "its vocabularies differ from those of its direct model" in refused.err) == (2, True)
