"""Answer selection through the real commands: trained on toy questions, ranked, evaluated, explained, compared."""

import json
import shutil
import sys
import tomllib

import ir_measures
import pytest

import antiphon as package
from antiphon.exceptions import InputError, RunError
from tests.sealing import seal_again
from tests.shared_folders import filled_once, run_command
from tests.toy import write_questions, write_vectors

SMALL = [
    "train.optimiser=adagrad",
    "train.learning_rate=0.1",
    "train.batch_size=16",
    "train.max_epochs=12",
    "train.passes=1",
    "train.patience=12",
    "train.dev_metric=map",
]


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """Toy questions, vectors and a recipe."""
    folder = tmp_path_factory.mktemp("answers")
    write_questions(folder / "train.tsv", 120, seed=1)
    write_questions(folder / "dev.tsv", 30, seed=2)
    write_questions(folder / "test.tsv", 30, seed=3)
    write_vectors(folder / "vectors.txt")
    (folder / "recipe.toml").write_text(
        '[data]\ntrain = "train.tsv"\ndev = "dev.tsv"\nvectors = "vectors.txt"\n'
        '[model]\nkind = "matcher"\nhidden_size = 12\nlayers = 1\ndropout = 0.1\n'
    )
    return folder


@pytest.fixture(scope="module")
def attentive(toy, tmp_path_factory):
    """A trained matcher with attention and words in common."""

    def fill(folder):
        run_command(*arguments_of(toy, folder / "attentive", "model.overlap=true"))

    return filled_once(tmp_path_factory, "attentive", fill) / "attentive"


def arguments_of(toy, out, *settings):
    flags = [part for setting in [*SMALL, *settings] for part in ("--set", setting)]
    return ["train", str(toy / "recipe.toml"), *flags, "--out", str(out)]


def train(toy, name, *settings):
    run_command(*arguments_of(toy, toy / name, *settings))
    return toy / name


def evaluate(antiphon, run, file, *options):
    return json.loads(antiphon("evaluate", run, file, "--json", *options).out)["metrics"]


@pytest.mark.parametrize("sentence", ["bag_of_words", "bigram", "lstm"])
def test_every_sentence_model_learns_toy_questions(antiphon, toy, sentence):
    run = train(toy, sentence, f"model.sentence={sentence}", "model.shared=true")
    metrics = evaluate(antiphon, run, toy / "test.tsv")
    assert metrics["map"]["value"] > 0.9
    assert "30 questions (all)|ties by id descending|trec_eval" in metrics["map"]["signature"]


def test_attention_learns_toy_questions_and_says_what_it_looks_at(antiphon, toy, attentive):
    metrics = evaluate(antiphon, attentive, toy / "test.tsv")
    assert metrics["map"]["value"] > 0.9
    piped = antiphon("evaluate", attentive, "-", "--json", stdin=(toy / "test.tsv").read_bytes())
    assert json.loads(piped.out)["metrics"] == metrics
    explained = antiphon("predict", attentive, toy / "test.tsv", "--explain")
    best = json.loads(explained.out.splitlines()[0])["ranking"][0]
    assert [word for word, _ in best["attention"]] == best["sentence"].split()
    assert sum(weight for _, weight in best["attention"]) == pytest.approx(1, abs=1e-4)


def test_errors_say_which_words_were_looked_at(antiphon, toy, attentive):
    (toy / "hard.tsv").write_text(
        "question_id\tquestion\tcandidate_id\tsentence\tlabel\n"
        "q\twhich city ?\tq-0\tthe old house was near oslo\t0\nq\twhich city ?\tq-1\ta big dog\t1\n"
    )
    result = antiphon("errors", attentive, toy / "hard.tsv", "--format", "jsonl")
    mistake = json.loads(result.out.splitlines()[1])
    assert mistake["first_probability"] > mistake["right_probability"]
    explained = json.loads(antiphon("predict", attentive, toy / "hard.tsv", "--explain").out)["ranking"][0]
    looked_at = sorted(explained["attention"], key=lambda each: -each[1])
    assert [word for word, _ in mistake["first_words"]] == [word for word, _ in looked_at[:5]]
    assert [weight for _, weight in mistake["first_words"]] == pytest.approx([w for _, w in looked_at[:5]], abs=1e-4)


def test_both_formats_have_one_order_of_equal_scores_and_the_name_of_a_run_is_one_word(antiphon, attentive, tmp_path):
    run = shutil.copytree(attentive, tmp_path / "my run")
    rows = "".join(f"q\twhich city ?\t{id}\tin oslo\n" for id in "bca")
    (tmp_path / "questions.tsv").write_text(f"question_id\tquestion\tcandidate_id\tsentence\n{rows}")
    lines = antiphon("predict", run, tmp_path / "questions.tsv").out.splitlines()
    assert [line.split()[2] for line in lines] == ["c", "b", "a"]
    assert {line.split(" ", 5)[5] for line in lines} == {"my_run"}
    (question,) = antiphon("predict", run, tmp_path / "questions.tsv", "--format", "jsonl").out.splitlines()
    assert [each["candidate_id"] for each in json.loads(question)["ranking"]] == ["c", "b", "a"]


def test_questions_that_training_skips_are_counted_and_named(tmp_path, capsys):
    from antiphon.cli.answer_selection import note_unmixed, read_judged
    from antiphon.ranking.questions import dev_questions, training_questions
    from antiphon.recipe.sections import DataSection

    file = tmp_path / "questions.tsv"
    rows = [
        f"{question}\twhich ?\t{answer}\ta text\t{int(question + answer == '1a')}"
        for question in "12"
        for answer in "ab"
    ]
    file.write_text("\n".join(["question_id\tquestion\tcandidate_id\tsentence\tlabel", *rows]))
    said = []
    data = DataSection(train=file, dev=file, questions="mixed")
    training_questions(data, said.append)
    dev_questions(data, said.append)
    assert said == [f"{name}: 1 of 2 questions with right and wrong candidates, 2 pairs" for name in ("train", "dev")]
    questions, _ = read_judged(file, None)
    note_unmixed(questions, "all")
    note_unmixed(questions, "mixed")
    assert capsys.readouterr().err.startswith("antiphon: 1 of 2 questions without a right or without a wrong candidate")


def test_a_new_question_is_ranked_by_a_folder_that_was_moved(attentive, tmp_path):
    moved = shutil.copytree(attentive, tmp_path / "moved" / "far" / "away")
    recipe = tomllib.loads((moved / "recipe.toml").read_text())
    for name in ("train", "vectors"):
        assert not (moved / recipe["data"][name]).exists()
    model = package.load(moved)
    sentences = ["the old horse story", "oslo was near the river", "a cat sat"]
    ranked = model.rank("which city is it ?", sentences)
    assert ranked[0].sentence == sentences[1]
    assert ranked[0].index == 1
    assert [each.probability for each in ranked] == sorted((each.probability for each in ranked), reverse=True)
    assert 0 < ranked[-1].probability < ranked[0].probability < 1
    again = package.load(attentive).rank("which city is it ?", sentences, explain=True)
    assert [each.score for each in again] == [each.score for each in ranked]
    assert len(again[0].attention) == 5


def test_a_run_holds_readable_files_and_nothing_that_executes(attentive):
    names = {path.name for path in attentive.iterdir()}
    assert names == {
        "manifest.json",
        "recipe.toml",
        "words.vocab",
        "vectors.safetensors",
        "overlap.tsv",
        "logistic.json",
        "model.safetensors",
        "metrics.json",
        "log.csv",
        "training.png",
    }
    logistic = json.loads((attentive / "logistic.json").read_text())
    assert logistic["names"] == ["words in common", "idf of words in common", "log odds"]
    assert json.loads((attentive / "metrics.json").read_text())["pairs_per_second"] > 0


def test_a_run_whose_counts_have_other_features_is_refused(attentive, tmp_path):
    run = shutil.copytree(attentive, tmp_path / "run")
    (run / "logistic.json").write_text(json.dumps({"names": ["length"], "weights": [1], "intercept": 0.5}))
    seal_again(run)
    with pytest.raises(package.AntiphonError, match=r"weights of length, expected those of words in common, idf"):
        package.load(run)


def test_predictions_are_a_trec_run_that_gives_what_evaluate_gives(antiphon, toy, attentive, tmp_path):
    (tmp_path / "run").write_text(antiphon("predict", attentive, toy / "test.tsv").out)
    rows = [line.split("\t") for line in (toy / "test.tsv").read_text().splitlines()[1:]]
    (tmp_path / "qrels").write_text("".join(f"{q} 0 {c} {label}\n" for q, _, c, _, label in rows))
    theirs = ir_measures.calc_aggregate(
        [ir_measures.AP, ir_measures.RR],
        ir_measures.read_trec_qrels(str(tmp_path / "qrels")),
        ir_measures.read_trec_run(str(tmp_path / "run")),
    )
    ours = evaluate(antiphon, attentive, toy / "test.tsv")
    assert ours["map"]["value"] == pytest.approx(theirs[ir_measures.AP])
    assert ours["mrr"]["value"] == pytest.approx(theirs[ir_measures.RR])
    first = (tmp_path / "run").read_text().split("\n")[0].split()
    assert first[:2] + first[3:4] + first[5:] == ["q0", "Q0", "1", "attentive"]


def test_judgements_of_a_qrels_file_count_instead_of_labels(antiphon, toy, attentive, tmp_path):
    rows = [line.split("\t") for line in (toy / "test.tsv").read_text().splitlines()[1:]]
    (tmp_path / "qrels").write_text("".join(f"{q} 0 {c} {1 - int(label)}\n" for q, _, c, _, label in rows))
    turned = evaluate(antiphon, attentive, toy / "test.tsv", "--qrels", tmp_path / "qrels")
    assert turned["mrr"]["value"] < 0.6
    assert "30 questions (of qrels, 30 ranked: all)" in turned["map"]["signature"]
    (tmp_path / "more").write_text((tmp_path / "qrels").read_text() + "unseen 0 unseen-0 1\n")
    more = evaluate(antiphon, attentive, toy / "test.tsv", "--qrels", tmp_path / "more")
    assert more["map"]["value"] == pytest.approx(turned["map"]["value"] * 30 / 31)


def test_question_sets_leave_questions_out(antiphon, toy, attentive, tmp_path):
    lines = (toy / "test.tsv").read_text().splitlines()
    wrong = [line[:-1] + "0" if line.startswith("q1\t") else line for line in lines]
    right = [line[:-1] + "1" if line.startswith("q2\t") else line for line in wrong]
    (tmp_path / "test.tsv").write_text("\n".join(right) + "\n")
    for which, number in (("all", 30), ("answerable", 29), ("mixed", 28)):
        signature = evaluate(antiphon, attentive, tmp_path / "test.tsv", "--questions", which)["map"]["signature"]
        assert signature.startswith(f"{number} questions ({which})")


def test_json_lines_hold_candidates_from_best_to_worst(antiphon, toy, attentive):
    unlabelled = (
        b"question_id\tquestion\tcandidate_id\tsentence\nx\twhich animal ?\tx1\trome\nx\twhich animal ?\tx2\tan owl\n"
    )
    (line,) = antiphon("predict", attentive, "--format", "jsonl", stdin=unlabelled).out.splitlines()
    answered = json.loads(line)
    assert answered["question"] == "which animal ?"
    assert [each["candidate_id"] for each in answered["ranking"]] == ["x2", "x1"]


@pytest.mark.parametrize("baseline", ["random", "word_count", "idf_word_count", "bm25"])
def test_baselines_are_runs_too(antiphon, toy, baseline):
    run = train(toy, baseline, "model.kind=overlap", f"model.baseline={baseline}")
    assert 0 < evaluate(antiphon, run, toy / "test.tsv")["map"]["value"] <= 1
    ranked = package.load(run).rank("where is the river ?", ["a dog", "near the river", "old story"])
    assert len(ranked) == 3
    if baseline != "random":
        assert ranked[0].sentence == "near the river"
    assert json.loads(antiphon("info", run, "--json").out)["kind"] == "overlap"


def test_compare_puts_rankers_side_by_side(antiphon, toy, attentive):
    other = train(toy, "counted", "model.kind=overlap", "model.baseline=random")
    result = antiphon("compare", attentive, other, toy / "test.tsv", "--format", "json")
    first, second = json.loads(result.out)["systems"]
    assert first["metrics"]["map"]["value"] > second["metrics"]["map"]["value"]
    assert second["metrics"]["map"]["p_value"] < 0.05
    assert first["outputs_per_second"] > 0
    table = antiphon("compare", attentive, other, toy / "test.tsv").out
    assert all(name in table for name in ("map", "mrr", "p_at_1"))


def test_a_test_file_is_evaluated_after_training(toy):
    run = train(
        toy,
        "tested",
        "model.sentence=bag_of_words",
        "train.max_epochs=1",
        "train.passes=1",
        f"data.test={toy / 'test.tsv'}",
    )
    assert (
        "30 questions (mixed)" in json.loads((run / "metrics.json").read_text())["test"]["metrics"]["map"]["signature"]
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["align", "RUN", "TEST"], "a run of kind matcher cannot align"),
        (["tune", "RUN", "TEST"], "a run of kind matcher has no weights to tune"),
        (["predict", "RUN", "TEST", "--beam", "3"], "--beam: does not apply to a run of kind matcher"),
        (["evaluate", "RUN", "TEST", "--reference", "TEST"], "--reference: does not apply to a run of kind matcher"),
        (["evaluate", "RUN", "QRELS"], "expected a first line of question_id"),
        (["evaluate", "RUN", "TEST", "--qrels", "QRELS"], "judges none of the 30 questions"),
        (
            ["evaluate", "TOY", "TEST", "--questions", "mixed"],
            "--questions: does not apply to a run of kind transducer",
        ),
        (["predict", "TOY", "TEST", "--explain"], "--explain: does not apply to a run of kind transducer"),
        (
            ["compare", "RUN", "RUN", "TEST", "--reference", "TEST"],
            "--reference: does not apply to a run of kind match",
        ),
        (["compare", "TOY", "TOY", "PAIRS", "--qrels", "QRELS"], "--qrels: does not apply to a run of kind transducer"),
        (["compare", "RUN", "TOY", "TEST"], "a run of kind transducer ranks no candidates"),
        (["compare", "TOY", "RUN", "PAIRS"], "a run of kind matcher writes no outputs"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(antiphon, toy, attentive, toy_run, arguments, message):
    (toy / "qrels").write_text("nobody 0 nobody-0 1\n")
    (toy / "pairs.tsv").write_text("badu\tbaaduun\n")
    places = {
        "RUN": attentive,
        "TOY": toy_run,
        "TEST": toy / "test.tsv",
        "QRELS": toy / "qrels",
        "PAIRS": toy / "pairs.tsv",
    }
    result = antiphon(*(places.get(argument, argument) for argument in arguments))
    assert result.status == 2
    assert message in result.err
    assert len(result.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("data.vectors=elephants.txt", "knows none of the"),
        ("data.vectors=none.txt", "none.txt: no such file"),
        ("data.train=one-label.tsv", "every candidate has label 1, expected both 0 and 1"),
        ("data.dev=one-label.tsv", "no question has both a right and a wrong candidate"),
        ("data.train=no-labels.tsv", "no labels, expected a column of 0 and 1"),
        ("train.dev_metric=accuracy", "train.dev_metric = accuracy: does not apply to this matcher"),
    ],
)
def test_what_cannot_be_learnt_from_is_refused_and_leaves_no_folder(
    antiphon, toy, tmp_path, monkeypatch, setting, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elephants.txt").write_text("elephant 1 2 3\n")
    header = "question_id\tquestion\tcandidate_id\tsentence"
    (tmp_path / "one-label.tsv").write_text(f"{header}\tlabel\n1\twho ?\t1-0\tthe cat\t1\n")
    (tmp_path / "no-labels.tsv").write_text(f"{header}\n1\twho ?\t1-0\tthe cat\n")
    result = antiphon(*arguments_of(toy, tmp_path / "run", setting))
    assert result.status == 2
    assert message in result.err
    assert not (tmp_path / "run").exists()


def test_a_matcher_without_vectors_says_how_to_give_them(antiphon, toy, tmp_path):
    (tmp_path / "bare.toml").write_text(
        f'[data]\ntrain = "{toy}/train.tsv"\ndev = "{toy}/dev.tsv"\n[train]\ndev_metric = "map"\n'
    )
    result = antiphon("train", tmp_path / "bare.toml", "--set", "model.kind=matcher", "--out", tmp_path / "run")
    assert result.status == 2
    assert "--set data.vectors=FILE" in result.err


@pytest.mark.parametrize(
    ("library", "settings", "extra"),
    [
        ("ir_measures", ["model.kind=overlap"], "qa"),
        ("bm25s", ["model.kind=overlap", "model.baseline=bm25"], "qa"),
        ("sklearn", ["model.overlap=true", "model.sentence=bag_of_words"], "qa"),
    ],
)
def test_a_missing_library_is_named_with_the_extra_that_brings_it(
    antiphon, toy, tmp_path, monkeypatch, library, settings, extra
):
    monkeypatch.setitem(sys.modules, library, None)
    result = antiphon(*arguments_of(toy, tmp_path / "run", *settings))
    assert result.status == 2
    assert f".[{extra}]" in result.err


def test_unknown_words_are_said_aloud(antiphon, toy, attentive, tmp_path):
    rows = "question_id\tquestion\tcandidate_id\tsentence\n1\tzzz xxx\t1-0\tthe cat\n"
    result = antiphon("predict", attentive, stdin=rows.encode())
    assert result.status == 0
    assert "1 question without a known word" in result.err


def test_sentences_may_be_any_iterable(attentive):
    model, sentences = package.load(attentive), ["the old house", "oslo was near the river"]
    assert model.rank("which city ?", iter(sentences)) == model.rank("which city ?", sentences)


def test_what_a_model_of_answers_cannot_do_in_python_is_refused(toy, attentive, toy_run):
    model = package.load(attentive)
    with pytest.raises(InputError, match="no sentences, expected at least one candidate"):
        model.rank("who ?", [])
    with pytest.raises(RunError, match="a run of kind matcher cannot predict"):
        model.predict(["x"])
    with pytest.raises(RunError, match="a run of kind matcher cannot evaluate pairs, expected evaluate_questions"):
        model.evaluate([("who ?", "me")])
    with pytest.raises(RunError, match="a run of kind transducer cannot rank"):
        package.load(toy_run).rank("who ?", ["me"])


@pytest.mark.parametrize("name", ["logistic.json", "overlap.tsv", "vectors.safetensors", "words.vocab"])
def test_a_run_with_a_file_missing_is_refused_by_its_name(antiphon, toy, attentive, tmp_path, name):
    shutil.copytree(attentive, tmp_path / "run")
    (tmp_path / "run" / name).unlink()
    for _ in range(2):
        result = antiphon("predict", tmp_path / "run", toy / "test.tsv")
        assert result.status == 2
        assert name in result.err
        seal_again(tmp_path / "run")


def test_a_run_that_ranks_is_no_member_of_an_ensemble(antiphon, attentive, toy_run, tmp_path):
    refused = antiphon("ensemble", toy_run, attentive, "--out", tmp_path / "both")
    assert refused.status == 2
    assert f"{attentive}: a run of kind matcher, expected one that predicts" in refused.err
    assert not (tmp_path / "both").exists()
