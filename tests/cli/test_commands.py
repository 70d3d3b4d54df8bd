"""What each command gives back when all is well."""

import json
import math

import pytest

import antiphon as package
from antiphon.runs.run_folder import RunFolder
from tests.toy import TOY, inflect, words, write_pairs


def test_the_toy_task_is_learnt_through_the_real_command(toy_run, antiphon, tmp_path):
    test = write_pairs(tmp_path / "test.tsv", 200, seed=9)
    result = json.loads(antiphon("evaluate", toy_run, test, "--json").out)
    assert result["examples"] == 200
    assert result["metrics"].keys() == {"accuracy", "edit_distance", "perplexity"}
    assert result["metrics"]["accuracy"]["value"] > 90
    assert result["metrics"]["perplexity"]["value"] < 1.1
    assert all(metric["signature"] for metric in result["metrics"].values())
    assert result["unknown_symbols"] == {"source": 0, "target": 0}


def test_evaluate_prints_a_table_for_people(toy_run, antiphon, tmp_path):
    result = antiphon("evaluate", toy_run, write_pairs(tmp_path / "test.tsv", 10))
    assert "accuracy" in result.out
    assert "10 pairs" in result.out


def test_evaluate_takes_parallel_files(toy_run, antiphon, tmp_path):
    (tmp_path / "x.a").write_text("badu\n")
    (tmp_path / "x.b").write_text("baaduun\n")
    result = json.loads(antiphon("evaluate", toy_run, tmp_path / "x.a", tmp_path / "x.b", "--json").out)
    assert result["examples"] == 1


def test_predict_keeps_order_and_number_of_lines(toy_run, antiphon):
    inputs = [*words(40, seed=5), "", *words(3, seed=6)]
    result = antiphon("predict", toy_run, stdin="\n".join(inputs).encode())
    outputs = result.out.split("\n")[:-1]
    assert len(outputs) == len(inputs)
    assert outputs[40] == ""
    right = sum(inflect(word) == output for word, output in zip(inputs, outputs, strict=True) if word)
    assert right > 35


def test_predict_reads_files_of_pairs_and_gzip(toy_run, antiphon, tmp_path):
    import gzip

    (tmp_path / "x.tsv.gz").write_bytes(gzip.compress(b"badu\tsomething\n"))
    assert antiphon("predict", toy_run, tmp_path / "x.tsv.gz").out == antiphon("predict", toy_run, stdin=b"badu\n").out


def test_predict_gives_json_lines_with_nbest_and_alignment(toy_run, antiphon):
    result = antiphon("predict", toy_run, "--format", "jsonl", "--nbest", "3", "--beam", "5", stdin=b"badu\n\n")
    first, empty = map(json.loads, result.out.splitlines())
    assert first.keys() >= {"source", "text", "score", "probability", "log_probability", "alignment", "nbest"}
    assert sum(candidate["probability"] for candidate in first["nbest"]) <= 1.0 + 1e-6
    assert first["source"] == "badu"
    scores = [candidate["score"] for candidate in first["nbest"]]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    assert [column for _, column in first["alignment"]] == list(range(len(first["tokens"])))
    assert all(0 <= row < len(first["source_symbols"]) for row, _ in first["alignment"])
    assert empty["text"] is None
    assert empty["probability"] is None
    assert empty["reason"] == "the input is empty"


def test_predict_and_align_link_the_same_positions(toy_run, antiphon):
    prediction = json.loads(antiphon("predict", toy_run, "--format", "jsonl", stdin=b"kito\n").out)
    last = len(prediction["source_symbols"]) - 1
    assert package.load(toy_run).predict(["kito"])[0].nbest[0].rows[-1] == last  # "n" is written at the end symbol
    pair = f"kito\t{prediction['text']}\n".encode()
    aligned = json.loads(antiphon("align", toy_run, "-", "--format", "jsonl", stdin=pair).out)
    assert prediction["alignment"] == aligned["alignment"]
    assert max(row for row, _ in prediction["alignment"]) == last - 1


def test_pairs_come_from_standard_input_too(toy_run, antiphon, tmp_path):
    file = write_pairs(tmp_path / "pairs.tsv", 5)
    for command in (["evaluate", "--json"], ["errors", "--format", "jsonl"]):
        wanted = antiphon(command[0], toy_run, file, *command[1:]).out.replace(str(file), "standard input")
        assert antiphon(command[0], toy_run, "-", *command[1:], stdin=file.read_bytes()).out == wanted
    assert "standard input:1: 1 column" in antiphon("evaluate", toy_run, "-", stdin=b"alone\n").err
    assert "expected a regular file" in antiphon("compare", toy_run, toy_run, "-", stdin=file.read_bytes()).err


def test_align_writes_pharaoh_json_and_pictures(toy_run, antiphon, tmp_path):
    pairs = write_pairs(tmp_path / "pairs.tsv", 4)
    pharaoh = antiphon("align", toy_run, pairs).out.splitlines()
    rows = [json.loads(line) for line in antiphon("align", toy_run, pairs, "--format", "jsonl").out.splitlines()]
    assert len(pharaoh) == len(rows) == 4
    for links, row in zip(pharaoh, rows, strict=True):
        assert links == " ".join(f"{i}-{j}" for i, j in row["alignment"])
        assert max(i for i, _ in row["alignment"]) < len(row["source"]) - 1
        columns = zip(*row["posterior"], strict=True)
        assert all(sum(column) == pytest.approx(1.0, abs=1e-3) for column in columns)
    pictures = antiphon("align", toy_run, pairs, "--format", "png", "--out", tmp_path / "p", "--limit", "2")
    assert [path.name for path in sorted((tmp_path / "p").iterdir())] == ["0001.png", "0002.png"]
    assert pictures.out.count("\n") == 2


def test_pairs_that_cannot_be_read_leave_no_folder_for_pictures(toy_run, antiphon, tmp_path):
    pairs = write_pairs(tmp_path / "pairs.tsv", 2)
    result = antiphon("align", toy_run, pairs, tmp_path / "missing.txt", "--format", "png", "--out", tmp_path / "p")
    assert result.status == 2
    assert not (tmp_path / "p").exists()


def test_info_says_what_a_run_is(toy_run, antiphon):
    facts = json.loads(antiphon("info", toy_run, "--json").out)
    assert facts["kind"] == "transducer"
    assert facts["state"] == "trained"
    assert facts["metrics"]["parameters"] > 0
    assert facts["recipe"]["model"]["hidden_size"] == 48
    assert "transducer" in antiphon("info", toy_run).out


def test_the_same_in_python(toy_run):
    model = package.load(toy_run)
    (prediction,) = model.predict(["badu"], nbest=2)
    assert prediction.text == "baaduun"
    read, written = zip(*prediction.segments, strict=True)
    assert ["".join(symbol for turn in turns for symbol in turn) for turns in (read, written)] == ["badu", "baaduun"]
    (log_prob,) = model.score([("badu", prediction.text)])
    assert prediction.log_probability == pytest.approx(log_prob, abs=1e-4)
    assert prediction.probability == pytest.approx(math.exp(log_prob), abs=1e-4)
    best = prediction.nbest[0]
    assert math.prod(best.token_probabilities) == pytest.approx(prediction.probability, abs=1e-4)
    assert len(best.token_probabilities) == len(best.tokens) + 1
    (alignment,) = model.align([("badu", prediction.text)])
    assert alignment.rows[:-1] == prediction.nbest[0].rows
    assert alignment.log_probability == pytest.approx(log_prob, abs=1e-4)
    assert math.isfinite(alignment.posterior.sum())
    assert model.module.training is False


def test_a_run_with_features_has_a_vocabulary_of_them(antiphon, tmp_path):
    train = tmp_path / "train.tsv"
    rows = [f"{word}\t{word + ending}\t{tag}\n" for word in words(150) for ending, tag in (("s", "N;PL"), ("", "N;SG"))]
    train.write_text("".join(rows))
    (tmp_path / "recipe.toml").write_text(
        "[model]\nhidden_size = 32\ndropout = 0.0\n[train]\nlearning_rate = 0.01\nmax_epochs = 24\npasses = 1\n"
    )
    run = tmp_path / "run"
    settings = ["--set", f"data.train={train}", "--set", f"data.dev={train}", "--set", f"data.test={train}"]
    assert antiphon("train", tmp_path / "recipe.toml", *settings, "--out", run).status == 0
    assert "PL" in (run / "features.vocab").read_text().split("\n")
    assert "PL" not in (run / "source.vocab").read_text()
    assert antiphon("predict", run, stdin=b"badu\tN;PL\nbadu\tN;SG\n").out == "badus\nbadu\n"
    assert antiphon("predict", run, stdin=b"badu\tPL;N\n").out == "badus\n"
    refused = antiphon("predict", run, stdin=b"badu\tN;SG\nbadu\tN;sgl\n")
    assert refused.status == 2
    assert "standard input:2: feature sgl was never seen in training, did you mean SG?" in refused.err
    unknown = antiphon("predict", run, "--format", "jsonl", "--allow-unknown-features", stdin=b"bXdu\tN;DUAL\n")
    assert json.loads(unknown.out)["unknown"] == ["X", "DUAL"]
    assert unknown.err == "antiphon: 2 symbols in 1 input that training never saw: 'X' (1), 'DUAL' (1)\n"
    (tmp_path / "test.tsv").write_text("badu\tbadus\tN;PLU\n")
    measured = antiphon("evaluate", run, tmp_path / "test.tsv")
    assert measured.err == "antiphon: features never seen in training: PLU (1; nearest: PL)\n"
    test = json.loads((run / "metrics.json").read_text())["test"]
    assert test["examples"] == 300
    assert package.load(run).predict([("badu", ["N", "PL"])])[0].text == "badus"
    bare = tmp_path / "bare.tsv"
    bare.write_text("badu\tbadus\n")
    for command in (
        ["evaluate", run, bare],
        ["errors", run, bare],
        ["align", run, bare],
        ["evaluate", run, bare, bare],
    ):
        refused = antiphon(*command)
        assert refused.status == 2
        assert "bare.tsv" in refused.err
        assert "but the model has some, expected source<TAB>target<TAB>features" in refused.err
    settings = ["--set", f"data.train={train}", "--set", f"data.dev={bare}"]
    refused = antiphon("train", tmp_path / "recipe.toml", *settings, "--out", tmp_path / "other")
    assert refused.status == 2
    assert "bare.tsv:1: no features, but the model has some" in refused.err
    assert not (tmp_path / "other").exists()


def test_targets_without_four_words_have_no_bleu_and_a_note_says_so(antiphon, tmp_path):
    (tmp_path / "pairs.tsv").write_text("turn it on\tLIGHT ON\nturn it off now\tLIGHT OFF NOW\n")
    pairs = tmp_path / "pairs.tsv"
    settings = [f"data.train={pairs}", f"data.dev={pairs}", "data.min_count=1", "model.hidden_size=8"]
    given = [part for setting in [*settings, "train.max_epochs=1", "train.passes=1"] for part in ("--set", setting)]
    trained = antiphon("train", "fr-en", *given, "--out", tmp_path / "run")
    assert "dev: no target has four tokens, so bleu is 0, and the best epoch is that with" in trained.err
    measured = antiphon("evaluate", tmp_path / "run", pairs)
    assert measured.err == "antiphon: no target has four words, so bleu is 0; the other metrics say more\n"


def test_outputs_far_longer_than_their_inputs_are_found_without_settings(antiphon, tmp_path):
    spelt = {"1": "a" * 18, "2": "b" * 24}
    numbers = ["1", "2", "11", "12", "21", "22"]
    (tmp_path / "pairs.tsv").write_text("".join(f"{n}\t{''.join(spelt[c] for c in n)}\n" for n in numbers))
    pairs = tmp_path / "pairs.tsv"
    settings = [f"data.train={pairs}", f"data.dev={pairs}", "model.hidden_size=8", "train.max_epochs=1"]
    given = [part for setting in settings for part in ("--set", setting)]
    assert antiphon("train", "inflection", *given, "--out", tmp_path / "run").status == 0
    search = package.load(tmp_path / "run").recipe.search
    longest = search.max_length_ratio * 3 + search.max_length_extra  # of two digits and the end symbol
    assert longest > 49


@pytest.mark.parametrize(("ending", "start"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG")])
def test_align_draws_the_first_pair_in_the_format_of_the_file_name(antiphon, toy_run, tmp_path, ending, start):
    (tmp_path / "pairs.tsv").write_text("badu\tbaaduun\nki\tkiin\n")
    picture = tmp_path / f"pair.{ending}"
    result = antiphon("align", toy_run, tmp_path / "pairs.tsv", "--plot", picture)
    assert (result.status, result.out) == (0, f"{picture}\n")
    assert picture.read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("name", "message"),
    [("pair.gif", "expected a name that ends in .png, .svg or .pdf"), ("none/pair.svg", "no folder")],
)
def test_a_picture_that_cannot_be_drawn_is_refused_first(antiphon, toy_run, tmp_path, name, message):
    result = antiphon("align", toy_run, tmp_path / "not-read.tsv", "--plot", tmp_path / name)
    assert result.status == 2
    assert message in result.err
    assert "not-read" not in result.err


def test_training_reports_dev_as_evaluate_measures_it_and_names_both_beams(toy_run, antiphon):
    metrics = RunFolder.open(toy_run).metrics()
    without_rules = antiphon("evaluate", toy_run, TOY / "dev.tsv", "--json", "--set", "search.rule_weight=0")
    measured = json.loads(without_rules.out)["metrics"]
    assert metrics["dev_accuracy_beam_4"] == measured["accuracy"]["value"]
    assert metrics["dev_edit_distance_beam_4"] == pytest.approx(measured["edit_distance"]["value"])
    assert metrics["dev_beam"] == 1
