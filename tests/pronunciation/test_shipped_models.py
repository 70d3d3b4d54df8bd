"""Models that come with the package are taken by name, as long as nothing else has that name."""

import json
import shutil

import pytest

import antiphon
from antiphon import lite
from antiphon.exceptions import RunError
from antiphon.runs.run_folder import RunFolder, shipped_runs
from tests.subprocesses import run_python


def test_every_shipped_model_pronounces_knight():
    assert lite.shipped_models() == ["en", "en-stream"]
    assert [lite.load(name).predict(["knight"])[0].text for name in lite.shipped_models()] == ["N AY1 T"] * 2


def test_a_shipped_run_is_taken_by_every_command(antiphon):
    assert shipped_runs() == ["en-stream"]
    assert antiphon("predict", "en-stream", stdin=b"knight\n").out == "N AY1 T\n"
    assert antiphon("stream", "en-stream", stdin=b"knight\n").out == "N AY1 T\n"


def test_the_run_and_the_exported_model_stream_alike():
    streams = [antiphon.load("en-stream", device="cpu").stream(), lite.load("en-stream").stream()]
    assert len({tuple(stream.read("quixotic") + stream.finish()) for stream in streams}) == 1


def test_a_folder_of_the_same_name_goes_first(toy_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(toy_run, tmp_path / "en-stream")
    assert antiphon.load("en-stream", device="cpu").predict(["dagibu"])[0].text != "D AE1 G IH0 B UW0"
    assert RunFolder.open(tmp_path / "en-stream").path == tmp_path / "en-stream"


@pytest.mark.parametrize("name", ["../en-stream", "en-stream.zip", "shipped/en-stream"])
def test_only_the_bare_name_of_a_run_is_one(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match="no such folder, expected a run folder"):
        antiphon.load(name)


def test_the_list_of_recipes_names_the_models(antiphon):
    listed = antiphon("recipes").out
    assert all(f"  {name} " in listed for name in lite.shipped_models())


def test_a_shipped_model_that_is_no_run_predicts_and_is_refused_elsewhere(antiphon):
    assert antiphon("predict", "en", "--nbest", 2, stdin=b"knight\n").out.splitlines()[0].endswith("\tN AY1 T")
    assert json.loads(antiphon("predict", "en", "--format", "jsonl", stdin=b"knight\n").out)["text"] == "N AY1 T"
    refused = antiphon("info", "en")
    assert refused.status == 2
    assert "en: an exported run, expected a run folder; antiphon predict en FILE predicts with it" in refused.err
    assert refused.err.endswith("; a run that comes with the package: en-stream\n")


@pytest.mark.parametrize("option", [("--set", "search.beam=3"), ("--device", "cuda"), ("--sample", 2)])
def test_no_option_of_predict_is_ignored_for_an_exported_run(antiphon, option):
    refused = antiphon("predict", "en", *option, stdin=b"knight\n")
    assert (refused.status, refused.out) == (2, "")


def test_predicting_with_an_exported_run_does_without_pytorch(tmp_path):
    (tmp_path / "words.txt").write_text("knight\n")
    program = """
import sys
from antiphon.cli import main

sys.argv[1:1] = ["predict", "en"]
try:
    main()
finally:
    assert "torch" not in sys.modules
"""
    assert run_python(program, tmp_path / "words.txt") == "N AY1 T\n"
