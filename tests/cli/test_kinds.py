"""Every kind of model goes through the same commands."""

import json
import math

import pytest

import antiphon as package
from tests.shared_folders import filled_once, run_command
from tests.toy import TOY, inflect, words, write_pairs

KINDS = ["encoder_decoder", "attention", "transformer", "suffix_rule", "language_model"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A small run of every kind, all with one vocabulary."""
    return filled_once(tmp_path_factory, "kinds", train_kinds)


def train_kinds(folder):
    write_pairs(folder / "dev.tsv", 40, seed=3)
    (folder / "more.txt").write_text("".join(f"{inflect(word)}\n" for word in words(200, seed=8)))
    (folder / "recipe.toml").write_text(
        "[model]\nhidden_size = 32\ndropout = 0.0\n[train]\nlearning_rate = 0.01\nmax_epochs = 4\npasses = 1\n"
    )
    for kind in KINDS:
        settings = [f"model.kind={kind}", f"data.train={TOY / 'train.tsv'}", f"data.dev={folder / 'dev.tsv'}"]
        if kind == "suffix_rule":
            settings += ["train.dev_metric=accuracy"]
        if kind == "language_model":
            settings += [f'data.unpaired=["{folder / "more.txt"}"]', f"data.vocab_from={folder / 'attention'}"]
        arguments = [part for setting in settings for part in ("--set", setting)]
        run_command("train", folder / "recipe.toml", *arguments, "--out", folder / kind)


@pytest.mark.parametrize("kind", KINDS)
def test_evaluate_agrees_with_predict_and_score_for_every_kind(antiphon, runs, kind):
    assert json.loads(antiphon("info", runs / kind, "--json").out)["kind"] == kind
    metrics = json.loads(antiphon("evaluate", runs / kind, runs / "dev.tsv", "--json").out)["metrics"]
    expected = {"language_model": {"perplexity"}, "suffix_rule": {"accuracy", "edit_distance"}}
    assert metrics.keys() == expected.get(kind, {"accuracy", "edit_distance", "perplexity"})
    pairs = [tuple(line.split("\t")) for line in (runs / "dev.tsv").read_text().splitlines()]
    model = package.load(runs / kind)
    if "accuracy" in metrics:
        found = model.predict([source for source, _ in pairs])
        right = sum(each.text == target for each, (_, target) in zip(found, pairs, strict=True))
        assert metrics["accuracy"]["value"] == pytest.approx(100 * right / len(pairs))
    if "perplexity" in metrics:
        tokens = sum(len(target) + 1 for _, target in pairs)
        assert metrics["perplexity"]["value"] == pytest.approx(math.exp(-sum(model.score(pairs)) / tokens), rel=1e-4)


@pytest.mark.parametrize("kind", KINDS[:4])
def test_predict_works_for_every_kind_that_answers(antiphon, runs, kind):
    result = antiphon("predict", runs / kind, "--format", "jsonl", "--nbest", "2", stdin=b"badu\n\nkato\n")
    assert [json.loads(line)["source"] for line in result.out.splitlines()] == ["badu", "", "kato"]
    assert package.load(runs / kind).kind == kind


@pytest.mark.parametrize("kind", ["attention", "transformer"])
def test_attention_is_shown_but_not_called_an_alignment(antiphon, runs, kind):
    row = json.loads(antiphon("align", runs / kind, runs / "dev.tsv", "--format", "jsonl").out.splitlines()[0])
    assert row["method"] == "attention"
    assert all(sum(column) == pytest.approx(1.0, abs=1e-3) for column in zip(*row["posterior"], strict=True))


def test_a_transformer_learns_the_toy_language_at_its_own_rate(antiphon, tmp_path):
    settings = ["model.kind=transformer", "model.layers=1", "search.rule_weight=0"]
    settings += [
        "train.max_epochs=12",
        "train.learning_rate=0.005",
        "train.warmup_updates=50",
        "train.final_learning_rate_ratio=0.02",
    ]
    options = [part for each in settings for part in ("--set", each)]
    estimate = antiphon("train", "toy", *options, "--out", tmp_path / "run", "--dry-run")
    assert "parameters" in estimate.err
    assert not (tmp_path / "run").exists()
    assert antiphon("train", "toy", *options, "--out", tmp_path / "run").status == 0
    evaluation = antiphon("evaluate", tmp_path / "run", write_pairs(tmp_path / "test.tsv", 100, seed=12), "--json")
    assert json.loads(evaluation.out)["metrics"]["accuracy"]["value"] >= 60


@pytest.mark.parametrize(
    ("verb", "kind", "message"),
    [
        ("predict", "language_model", "a run of kind language_model cannot predict"),
        ("align", "encoder_decoder", "a run of kind encoder_decoder cannot align"),
        ("align", "suffix_rule", "a run of kind suffix_rule cannot align"),
    ],
)
def test_a_wrong_kind_for_a_verb_is_refused_by_name(antiphon, runs, verb, kind, message):
    result = antiphon(verb, runs / kind, runs / "dev.tsv")
    assert result.status == 2
    assert message in result.err


def test_a_language_model_learns_from_unpaired_text_with_the_vocabulary_of_another_run(runs):
    assert (runs / "language_model" / "target.vocab").read_bytes() == (runs / "attention" / "target.vocab").read_bytes()
    log = (runs / "language_model" / "metrics.json").read_text()
    assert json.loads(log)["dev_perplexity"] < 12
    likely, unlikely = package.load(runs / "language_model").score([("", "baaduun"), ("", "nuudaab")])
    assert likely > unlikely


@pytest.mark.parametrize("setting", ["data.target_tokens=words", "data.lowercase=true"])
def test_a_vocabulary_of_other_tokens_or_steps_is_refused(antiphon, runs, tmp_path, setting):
    settings = ["model.kind=language_model", f"data.vocab_from={runs / 'attention'}", setting]
    settings += [f"data.train={TOY / 'train.tsv'}", f"data.dev={TOY / 'dev.tsv'}"]
    arguments = [part for each in settings for part in ("--set", each)]
    result = antiphon("train", runs / "recipe.toml", *arguments, "--out", tmp_path / "run")
    assert result.status == 2
    assert "data.vocab_from" in result.err


@pytest.mark.parametrize(
    ("kind", "metric"), [("language_model", "accuracy"), ("suffix_rule", "perplexity"), ("attention", "bleu")]
)
def test_a_dev_metric_that_a_kind_cannot_have_is_refused(antiphon, runs, tmp_path, kind, metric):
    result = antiphon(
        "train",
        "toy",
        "--set",
        f"model.kind={kind}",
        "--set",
        f"train.dev_metric={metric}",
        "--out",
        tmp_path / "r",
    )
    assert result.status == 2
    assert f"train.dev_metric = {metric}: does not apply to this {kind}, expected" in result.err


def test_a_noisy_channel_is_not_trained(antiphon, tmp_path):
    result = antiphon("train", "toy", "--set", "model.kind=noisy_channel", "--out", tmp_path / "r")
    assert result.status == 2
    assert "made of trained runs by antiphon combine" in result.err


def test_compare_puts_runs_side_by_side(antiphon, runs, toy_run):
    names = ["attention", "encoder_decoder", "transformer", "suffix_rule"]
    arguments = ["compare", *(runs / name for name in names), runs / "dev.tsv"]
    systems = json.loads(antiphon(*arguments, "--format", "json").out)["systems"]
    assert [system["kind"] for system in systems] == names
    for system in systems:
        accuracy = system["metrics"]["accuracy"]
        assert accuracy["interval"][0] <= accuracy["value"] <= accuracy["interval"][1]
        assert system["outputs_per_second"] > 0
        assert accuracy["signature"]
    assert systems[0]["metrics"]["accuracy"]["p_value"] is None
    assert 0 < systems[1]["metrics"]["accuracy"]["p_value"] <= 1
    table = antiphon(*arguments).out
    assert all(text in table for text in ("transformer", "accuracy", "exact match|nfc|percent"))


def test_compare_refuses_what_cannot_be_compared(antiphon, runs, tmp_path):
    assert "fewer than two runs" in antiphon("compare", runs / "attention", runs / "dev.tsv").err
    language_model = antiphon("compare", runs / "attention", runs / "language_model", runs / "dev.tsv")
    assert language_model.status == 2
    assert "a run of kind language_model writes no outputs" in language_model.err
    settings = ["--set", "data.target_tokens=words", "--set", "model.kind=suffix_rule"]
    assert antiphon("train", "toy", *settings, "--out", tmp_path / "other").status == 0
    other = antiphon("compare", runs / "attention", tmp_path / "other", runs / "dev.tsv")
    assert other.status == 2
    assert "as other tokens than" in other.err


def test_compare_leaves_out_the_perplexity_of_another_vocabulary(antiphon, runs, tmp_path):
    settings = ["model.hidden_size=8", "train.max_epochs=1", "train.passes=1", "data.min_count=300"]
    options = [part for setting in settings for part in ("--set", setting)]
    assert antiphon("train", "toy", *options, "--out", tmp_path / "other").status == 0
    compared = antiphon("compare", runs / "attention", tmp_path / "other", runs / "dev.tsv", "--format", "json")
    assert "other: its target vocabulary differs" in compared.err
    known, other = json.loads(compared.out)["systems"]
    assert known["perplexity"] > 1
    assert other["perplexity"] is None
    assert 0 <= other["metrics"]["accuracy"]["value"] <= 100


def test_further_references_count_and_must_have_as_many_lines(antiphon, runs, tmp_path):
    (tmp_path / "pairs.tsv").write_text("badu\twrong\nkato\twrong\n")
    predictions = antiphon("predict", runs / "suffix_rule", tmp_path / "pairs.tsv").out
    (tmp_path / "more.txt").write_text(predictions)
    arguments = ["evaluate", runs / "suffix_rule", tmp_path / "pairs.tsv", "--json"]
    assert json.loads(antiphon(*arguments).out)["metrics"]["accuracy"]["value"] == 0.0
    better = json.loads(antiphon(*arguments, "--reference", tmp_path / "more.txt").out)
    assert better["metrics"]["accuracy"]["value"] == 100.0
    (tmp_path / "short.txt").write_text("one line\n")
    refused = antiphon(*arguments, "--reference", tmp_path / "short.txt")
    assert refused.status == 2
    assert "short.txt: 1 line, expected 2 as in" in refused.err


def test_a_bidirectional_encoder_is_not_asked_to_stream(antiphon, toy_run):
    refused = antiphon("stream", toy_run, stdin=b"badu\n")
    assert refused.status == 2
    assert "bidirectional encoder and cannot write before its input has ended" in refused.err
