"""``antiphon errors`` and ``evaluate --by``: what a run gets wrong, through the real commands."""

import json

import pytest

from tests.toy import inflect, words

ODD = "ba|d\\u"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pairs with features, of which suffix rules of few pairs and of many get different ones right."""
    folder = tmp_path_factory.mktemp("errors")
    rows = [f"{word}\t{inflect(word)}{tag[-1]}\t{tag}\n" for word in words(60) for tag in ("N;PL", "N;SG")]
    for name, lines in (("few", rows[:30]), ("many", rows), ("test", rows[20:80])):
        (folder / f"{name}.tsv").write_text("".join(lines))
    return folder


@pytest.fixture(scope="module")
def runs(folder):
    """Suffix rules of few and of many pairs."""

    from antiphon.recipe.recipe_file import find_recipe, load_recipe
    from antiphon.training.fit import train

    for name in ("few", "many"):
        settings = ["model.kind=suffix_rule", f"data.train={folder / name}.tsv", f"data.dev={folder / 'test.tsv'}"]
        train(load_recipe(find_recipe("inflection"), settings), folder / f"run-{name}")
    return folder / "run-few", folder / "run-many"


@pytest.fixture
def pairs(tmp_path):
    """Pairs of the toy language, the second with another target, the third with symbols that training never saw."""
    path = tmp_path / "pairs.tsv"
    path.write_text(f"badu\tbaaduun\nki\tkaan\n{ODD}\t*baaduun*\n")
    return path


def objects(out):
    return [json.loads(line) for line in out.splitlines()]


def test_mistakes_come_with_probabilities_and_the_alignment_that_align_writes(toy_run, pairs, antiphon, tmp_path):
    summary, *mistakes = objects(antiphon("errors", toy_run, pairs, "--format", "jsonl").out)
    assert (summary["pairs"], summary["right"]) == (3, 1)
    assert [mistake["where"] for mistake in mistakes] == [f"{pairs}:2", f"{pairs}:3"]
    first, odd = mistakes
    assert (first["source"], first["reference"], first["output"]) == ("ki", "kaan", "kiin")
    assert odd["unseen"] == ["|", "\\", "*", "*"]
    own = tmp_path / "own.tsv"
    own.write_text(f"ki\t{first['output']}\n")
    assert first["alignment"] == antiphon("align", toy_run, own).out.strip()
    (best,) = objects(antiphon("predict", toy_run, "--format", "jsonl", stdin=b"ki\n").out)
    assert first["probability"] == pytest.approx(best["probability"])
    assert {(edit["wanted"], edit["written"]) for edit in summary["edits"]} >= {("a", "i"), ("*", "")}
    assert {group["by"] for group in summary["groups"]} == {"length", "unseen"}


def test_accuracies_are_those_of_evaluate(toy_run, pairs, antiphon):
    (summary, *_) = objects(antiphon("errors", toy_run, pairs, "--format", "jsonl").out)
    evaluated = json.loads(antiphon("evaluate", toy_run, pairs, "--json", "--by", "length", "--by", "unseen").out)
    assert summary["accuracy"] == evaluated["metrics"]["accuracy"]["value"]
    assert [(group["name"], group["pairs"]) for group in summary["groups"]] == [
        (group["name"], group["pairs"]) for group in evaluated["groups"]
    ]
    assert all(group["metrics"].keys() == {"accuracy", "edit_distance"} for group in evaluated["groups"])
    assert "groups" not in json.loads(antiphon("evaluate", toy_run, pairs, "--json").out)


def test_every_format_holds_the_mistakes(toy_run, pairs, antiphon, tmp_path):
    text = antiphon("errors", toy_run, pairs).out
    assert "1 of 3 pairs right (accuracy 33.33), 2 wrong" in text
    assert "by source length" in text
    header, *rows = (
        line.split("\t") for line in antiphon("errors", toy_run, pairs, "--format", "tsv").out.splitlines()
    )
    assert [dict(zip(header, row, strict=True))["source"] for row in rows] == ["ki", ODD]
    out = tmp_path / "errors.txt"
    result = antiphon("errors", toy_run, pairs, "--most", "1", "--out", out)
    assert (result.status, result.out) == (0, "")
    assert "... and 1 more; --most 0 shows all" in out.read_text()
    refused = antiphon("errors", toy_run, pairs, "--out", out)
    assert (refused.status, "exists already, expected the name of a new file" in refused.err) == (2, True)


@pytest.mark.parametrize("name", ["feature", "features"])
def test_groups_by_feature_and_by_tag(runs, folder, antiphon, name):
    result = antiphon("errors", runs[0], folder / "test.tsv", "--by", name, "--format", "tsv")
    header, *rows = (line.split("\t") for line in result.out.splitlines())
    assert header == ["by", "name", "pairs", "accuracy"]
    assert [row[:3] for row in rows] == [
        ["feature", "N", "60"],
        ["feature", "PL", "30"],
        ["feature", "SG", "30"],
        ["tag", "N;PL", "30"],
        ["tag", "N;SG", "30"],
    ]
    assert "by tag" in antiphon("evaluate", runs[0], folder / "test.tsv", "--by", name).out


def test_against_lists_what_one_run_alone_gets_right(runs, folder, antiphon):
    few, many = runs
    summary, *rest = objects(antiphon("errors", few, folder / "test.tsv", "--against", many, "--format", "jsonl").out)
    other, *_ = objects(antiphon("errors", many, folder / "test.tsv", "--against", few, "--format", "jsonl").out)
    counts = summary["against"]
    assert sum(counts.values()) == 60
    assert counts["both_right"] + counts["only_this"] == summary["right"]
    assert counts["only_other"] == other["against"]["only_this"] > 0
    lost = [each for each in rest if each["type"] == "difference" and each["right"] == str(many)]
    assert len(lost) == min(50, counts["only_other"])
    assert all(each["other_output"] == each["reference"] != each["output"] for each in lost)
    text = antiphon("errors", few, folder / "test.tsv", "--against", many).out
    assert f"only {many} is right" in text
    table = antiphon("errors", few, folder / "test.tsv", "--against", many, "--format", "tsv").out.splitlines()
    assert len(table) == 1 + counts["only_this"] + counts["only_other"]


def test_suspicious_pairs_come_first(toy_run, tmp_path, antiphon):
    path = tmp_path / "train.tsv"
    lines = [f"{word}\t{inflect(word)}\n" for word in words(20)]
    path.write_text("".join([*lines[:10], "badu\tgeheim\n", *lines[10:]]))
    found = objects(antiphon("errors", toy_run, path, "--suspicious", "--most", "3", "--format", "jsonl").out)
    assert len(found) == 3
    assert (found[0]["where"], found[0]["output"]) == (f"{path}:11", "baaduun")
    per_token = [each["log_probability_per_token"] for each in found]
    assert per_token == sorted(per_token)
    everything = antiphon("errors", toy_run, path, "--suspicious", "--most", "0", "--format", "tsv").out
    assert len(everything.splitlines()) == 22
    assert "the 3 least probable of 21 pairs" in antiphon("errors", toy_run, path, "--suspicious", "--most", "3").out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--by", "colour"], "--by colour: unknown group, expected features, length, unseen"),
        (["--by", "features"], "the run was trained without features"),
        (["--suspicious", "--by", "length"], "--suspicious: does not work with --by or --against"),
        (["--out", "nowhere/x.md"], "no folder nowhere"),
        (["--most", "-1"], "--most"),
        (["--against", "nowhere"], "nowhere: no such folder"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(toy_run, pairs, antiphon, options, message):
    refused = antiphon("errors", toy_run, pairs, *options)
    assert refused.status == 2
    assert message in refused.err
    assert refused.out == ""


def test_runs_that_read_pairs_in_another_way_are_not_compared(toy_run, runs, folder, antiphon):
    refused = antiphon("errors", runs[0], folder / "test.tsv", "--against", toy_run)
    assert (refused.status, "differently from" in refused.err) == (2, True)


def test_groups_are_not_measured_online(toy_run, pairs, antiphon):
    refused = antiphon("evaluate", toy_run, pairs, "--online", "--by", "length")
    assert (refused.status, "--by: does not work with --online" in refused.err) == (2, True)


def test_training_on_inflection_says_what_suffix_rules_get(folder, tmp_path, antiphon):
    settings = [f"data.{part}={folder / name}.tsv" for part, name in (("train", "many"), ("dev", "test"))]
    settings += ["model.hidden_size=4", "model.layers=1", "train.max_epochs=1", "train.passes=1"]
    arguments = [part for setting in settings for part in ("--set", setting)]
    trained = antiphon("train", "inflection", *arguments, "--out", tmp_path / "run")
    assert trained.status == 0
    assert "suffix rules of the same pairs: dev accuracy 100" in trained.err


HEADER = "question_id\tquestion\tcandidate_id\tsentence\tlabel\n"
ANSWERS = (
    ("q1", "who saw the red owl", [("the red owl saw him", 0), ("anna did", 1), ("an owl", 0)]),
    ("q2", "where is oslo", [("oslo is in norway", 1), ("rome is far", 0)]),
    ("q3", "what is rome", [("a city", 1)]),
)


@pytest.fixture(scope="module")
def counting(tmp_path_factory):
    """Questions, and two baselines that rank their candidates: by words in common and at random."""
    from antiphon.recipe.recipe_file import find_recipe, load_recipe
    from antiphon.training.fit import train

    folder = tmp_path_factory.mktemp("counting")
    rows = [(q, text, f"{q}-{n}", *each) for q, text, answers in ANSWERS for n, each in enumerate(answers)]
    (folder / "questions.tsv").write_text(HEADER + "".join("\t".join(map(str, row)) + "\n" for row in rows))
    for name in ("word_count", "random"):
        settings = [f"data.{part}={folder / 'questions.tsv'}" for part in ("train", "dev")]
        settings += ["model.kind=overlap", f"model.baseline={name}", "train.seed=2"]
        train(load_recipe(find_recipe("answer-selection"), settings), folder / name)
    return folder


def test_questions_come_with_the_rank_of_the_right_sentence_and_the_one_before_it(counting, antiphon):
    result = antiphon("errors", counting / "word_count", counting / "questions.tsv", "--format", "jsonl")
    summary, mistake = objects(result.out)
    assert (summary["questions"], summary["right"]) == (2, 1)
    assert summary["ranks"] == {"1": 1, "2": 0, "3": 1, "4 to 5": 0, "6 to 10": 0, "more than 10": 0}
    assert (mistake["question_id"], mistake["rank"], mistake["candidates"]) == ("q1", 3, 3)
    assert (mistake["right"], mistake["first"]) == ("anna did", "the red owl saw him")
    assert mistake["right_probability"] is None
    assert "1 question without a right or without a wrong candidate left out" in result.err
    text = antiphon("errors", counting / "word_count", counting / "questions.tsv").out
    assert "1 of 2 questions right (50.00 %), 1 wrong" in text
    assert "a wrong sentence is first" in text
    assert "probability" not in text


def test_two_rankers_are_compared_question_by_question(counting, antiphon):
    command = ["errors", counting / "word_count", counting / "questions.tsv", "--against", counting / "random"]
    summary, *rest = objects(antiphon(*command, "--format", "jsonl").out)
    other, *_ = objects(antiphon("errors", counting / "random", command[2], "--format", "jsonl").out)
    counts = summary["against"]
    assert counts["both_right"] + counts["only_this"] == summary["right"]
    assert counts["both_right"] + counts["only_other"] == other["right"]
    assert sum(counts.values()) == 2
    differences = [each for each in rest if each["type"] == "difference"]
    assert len(differences) == counts["only_this"] + counts["only_other"] > 0
    for each in differences:
        assert (each["rank"] == 1) is (each["right_run"] == str(counting / "word_count")) is (each["other_rank"] > 1)
        labels = dict(answer for _, text, answers in ANSWERS if text == each["question"] for answer in answers)
        assert (labels[each["right"]], labels[each["wrong"]]) == (1, 0)
    header, *rows = (line.split("\t") for line in antiphon(*command, "--format", "tsv").out.splitlines())
    assert len(rows) == len(differences)
    assert header[:2] == ["right_run", "question_id"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--by", "length"], "--by: does not apply to a run of kind overlap"),
        (["--suspicious"], "--suspicious: does not apply to a run of kind overlap"),
        (["--beam", "2"], "--beam: does not apply to a run of kind overlap"),
        (["more.tsv"], "more.tsv: does not apply to a run of kind overlap"),
    ],
)
def test_what_is_of_outputs_is_refused_for_questions(counting, antiphon, options, message):
    refused = antiphon("errors", counting / "random", counting / "questions.tsv", *options)
    assert (refused.status, refused.out) == (2, "")
    assert message in refused.err


def test_questions_are_not_compared_with_outputs(counting, toy_run, antiphon):
    refused = antiphon("errors", counting / "random", counting / "questions.tsv", "--against", toy_run)
    assert (refused.status, "ranks no candidates, expected one that does" in refused.err) == (2, True)
    (counting / "right.tsv").write_text(HEADER + "q\twho\tq-0\tme\t1\n")
    refused = antiphon("errors", counting / "random", counting / "right.tsv")
    assert (refused.status, "none of the 1 questions has both a right and a wrong" in refused.err) == (2, True)
