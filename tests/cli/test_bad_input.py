"""Every mistake gets one clear sentence and exit status 2, and nothing is lost."""

import shutil
import time

import pytest

from tests.sealing import seal_again
from tests.toy import TOY, write_pairs


@pytest.fixture
def damaged(toy_run, tmp_path):
    """A copy of the toy run to damage."""
    return shutil.copytree(toy_run, tmp_path / "damaged")


def assert_refused(result, *parts):
    assert result.status == 2
    assert result.out == ""
    assert result.err.startswith("antiphon: ")
    assert "Traceback" not in result.err
    assert result.err.count("\n") == 1
    for part in parts:
        assert part in result.err


def write(path, content):
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"", ["bad.tsv: no pairs to use", "expected lines of source<TAB>target"]),
        (b"\n\n", ["bad.tsv: no pairs to use", "2 empty"]),
        (b"a\tb\nc\n", ["bad.tsv:2: 1 column, expected source<TAB>target"]),
        (b"a\tb\tc\td\n", ["bad.tsv:1: 4 columns"]),
        (b"a\tb\nc\t\xff\xfe\n", ["bad.tsv:2: byte 3 is not UTF-8"]),
    ],
)
def test_bad_training_files_are_named(antiphon, tmp_path, content, parts):
    bad, dev = write(tmp_path / "bad.tsv", content), write_pairs(tmp_path / "dev.tsv", 3)
    result = antiphon(
        "train", "toy", "--set", f"data.train={bad}", "--set", f"data.dev={dev}", "--out", tmp_path / "run"
    )
    assert_refused(result, *parts)


def test_a_missing_training_file_is_named(antiphon, tmp_path):
    result = antiphon("train", "toy", "--set", f"data.train={tmp_path / 'none.tsv'}", "--out", tmp_path / "run")
    assert_refused(result, "none.tsv: no such file or directory")


def test_a_refused_training_file_costs_no_earlier_run(antiphon, tmp_path):
    arguments = ["train", "toy", "--out", tmp_path / "run", "--set", "train.max_epochs=1"]
    empty = write(tmp_path / "empty.tsv", b"")
    assert_refused(antiphon(*arguments, "--set", f"data.train={empty}"), "empty.tsv")
    assert not (tmp_path / "run").exists()
    assert antiphon(*arguments).status == 0
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    assert_refused(antiphon(*arguments, "--force", "--set", f"data.train={empty}"), "empty.tsv")
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["run"]


@pytest.mark.parametrize(
    ("setting", "part"),
    [
        ("model.hiden_size=3", "model.hiden_size: unknown key, did you mean hidden_size?"),
        ("model.dropout=1.5", "model.dropout = 1.5: input should be less than or equal to 0.99"),
        ("model.kind=transducr", "model.kind = 'transducr': input should be"),
        ("train.seed=-1", "train.seed = -1: input should be greater than or equal to 0"),
        ("seed=1", "--set seed=1: expected section.key=value"),
    ],
)
def test_impossible_settings_are_named(antiphon, tmp_path, setting, part):
    assert_refused(antiphon("train", "toy", "--set", setting, "--out", tmp_path / "run"), part)
    assert not (tmp_path / "run").exists()


def test_a_recipe_that_is_not_there_is_named(antiphon):
    assert_refused(antiphon("train", "none.toml"), "none.toml: no such recipe")


def test_a_folder_that_holds_a_run_is_refused(antiphon, toy_run):
    result = antiphon("train", "toy", "--out", toy_run)
    assert_refused(result, "holds a run already", "--resume", "--force")


@pytest.mark.parametrize(
    "verb", [["predict"], ["evaluate", str(TOY / "dev.tsv")], ["align", str(TOY / "dev.tsv")], ["info"]]
)
def test_what_is_no_run_folder_is_refused_by_every_verb(antiphon, tmp_path, verb):
    name, *rest = verb
    assert_refused(antiphon(name, tmp_path / "none", *rest), "none: no such folder, expected a run folder")
    assert_refused(antiphon(name, tmp_path, *rest), "not a run folder, expected one with a manifest.json")
    (tmp_path / "lite.json").write_text("{}")
    said = ["lite.json: damaged"] if name == "predict" else ["an exported run", f"antiphon predict {tmp_path} FILE"]
    assert_refused(antiphon(name, tmp_path, *rest), *said)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("model.safetensors", "damaged or cut short"),
        ("recipe.toml", "damaged"),
        ("source.vocab", "not a vocabulary"),
    ],
)
def test_a_truncated_run_is_refused(antiphon, damaged, name, part):
    content = (damaged / name).read_bytes()
    (damaged / name).write_bytes(content[: len(content) // 2] if name != "source.vocab" else b"<pad>\n")
    if name == "recipe.toml":
        (damaged / name).write_bytes(content[:-3])
    assert_refused(antiphon("predict", damaged, stdin=b"a\n"), name, "damaged, or changed by hand")
    seal_again(damaged)
    assert_refused(antiphon("predict", damaged, stdin=b"a\n"), name, part)


@pytest.mark.parametrize("name", ["model.safetensors", "target.vocab"])
def test_a_run_with_a_file_missing_is_refused(antiphon, damaged, name):
    (damaged / name).unlink()
    assert_refused(antiphon("predict", damaged, stdin=b"a\n"), name, "expected")


def test_weights_of_another_model_are_refused(antiphon, damaged):
    recipe = damaged / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("hidden_size = 48", "hidden_size = 47"))
    seal_again(damaged)
    assert_refused(antiphon("predict", damaged, stdin=b"a\n"), "not the weights of this run's recipe")


def test_a_pickle_in_place_of_weights_is_never_run(antiphon, damaged, tmp_path):
    import pickle

    class Trap:
        def __reduce__(self):
            return open, (str(tmp_path / "sprung"), "w")

    (damaged / "model.safetensors").write_bytes(pickle.dumps(Trap()))
    seal_again(damaged)
    assert_refused(antiphon("predict", damaged, stdin=b"a\n"), "model.safetensors")
    assert not (tmp_path / "sprung").exists()


def test_symbols_never_seen_still_get_an_answer_and_are_counted(antiphon, toy_run, tmp_path):
    import json

    assert antiphon("predict", toy_run, stdin="ΩЖ\n".encode()).out.count("\n") == 1
    pairs = write(tmp_path / "pairs.tsv", "Ωba\tbaaЖЖn\n".encode())
    result = json.loads(antiphon("evaluate", toy_run, pairs, "--json").out)
    assert result["unknown_symbols"] == {"source": 1, "target": 2}


def test_empty_lines_keep_the_line_count(antiphon, toy_run):
    assert antiphon("predict", toy_run, stdin=b"\n\nbadu\n\n").out.split("\n")[:2] == ["", ""]
    assert antiphon("predict", toy_run, stdin=b"").out == ""


def test_empty_lines_in_an_evaluation_are_counted(antiphon, toy_run, tmp_path):
    result = antiphon("evaluate", toy_run, write(tmp_path / "p.tsv", b"badu\tbaaduun\n\n"), "--json")
    assert result.status == 0
    assert "1 line without a source or a target skipped" in result.err


def test_an_empty_evaluation_file_is_refused(antiphon, toy_run, tmp_path):
    assert_refused(antiphon("evaluate", toy_run, write(tmp_path / "p.tsv", b""), "--json"), "p.tsv: no pairs")


@pytest.mark.parametrize(("letters", "seconds"), [(2_000, 30), pytest.param(10_000, 120, marks=pytest.mark.slow)])
def test_a_very_long_line_is_answered_in_bounded_time(antiphon, toy_run, letters, seconds):
    started = time.process_time()
    result = antiphon("predict", toy_run, "--beam", "1", stdin=b"bdgkmsta" * (letters // 8) + b"\nbadu\n")
    assert result.status == 0
    assert result.out.split("\n")[1] == "baaduun"
    assert time.process_time() - started < seconds


def test_bytes_that_are_no_text_on_standard_input_are_named(antiphon, toy_run):
    assert_refused(antiphon("predict", toy_run, stdin=b"\xff\n"), "standard input:1: byte 1 is not UTF-8")


def test_features_for_a_run_without_them_are_refused(antiphon, toy_run):
    assert_refused(antiphon("predict", toy_run, stdin=b"a\tb\tN;PL\n"), "standard input:1: 3 columns, expected source")


def test_a_gpu_that_is_not_there_is_refused(antiphon, toy_run):
    assert_refused(antiphon("predict", toy_run, "--device", "cuda", stdin=b"a\n"), "no GPU found")


def test_an_unknown_option_is_a_mistake_of_the_user_too(antiphon, toy_run):
    assert antiphon("predict", toy_run, "--beem", "3").status == 2
