"""antiphon.lite needs neither PyTorch nor anything else but numpy and onnxruntime."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import antiphon as package
from antiphon.export.exported_run import export_run
from antiphon.lite import __main__ as lite_command
from tests.lite.drawn_runs import TEXTS, write_run

ROOT = Path(__file__).parent.parent.parent
HIDE = """
import sys

HIDDEN = {"torch", "pydantic", "typer", "rich", "pyarrow", "safetensors", "jaxtyping", "onnx", "sentencepiece"}


class Hiding:
    '''A finder that does not find some packages.'''

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in HIDDEN else self.finder.find_spec(name, path, target)


sys.meta_path[:] = map(Hiding, sys.meta_path)
"""


def run_hidden(program, *arguments, stdin=""):
    """Runs a program for which only numpy and onnxruntime are installed."""
    command = [sys.executable, "-c", HIDE + program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, input=stdin, cwd=ROOT)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A run that streams, and its exported folder."""
    folder = tmp_path_factory.mktemp("run")
    run = write_run(folder / "run", "unidirectional")
    export_run(run, folder / "lite")
    return run, folder / "lite"


def test_predictions_and_streams_without_pytorch_are_those_with_it(exported):
    run, folder = exported
    program = """
import json
import antiphon.lite

model = antiphon.lite.load(sys.argv[1])
predictions = model.predict(json.loads(sys.argv[2]), nbest=2)
stream = model.stream(policy="greedy")
print(json.dumps([[each.to_dict() for each in predictions], stream.read("fade") + stream.finish()]))
assert not HIDDEN & {name.partition(".")[0] for name in sys.modules}
"""
    done = run_hidden(program, folder, json.dumps(TEXTS))
    assert done.returncode == 0, done.stderr
    found, streamed = json.loads(done.stdout)
    model = package.load(run, device="cpu")
    wanted = model.predict(TEXTS, nbest=2)
    assert [each["text"] for each in found] == [each.text for each in wanted]
    assert [each["alignment"] for each in found] == [list(map(list, each.alignment)) for each in wanted]
    for ours, theirs in zip(found, wanted, strict=True):
        if theirs.log_probability is None:
            assert ours["log_probability"] is None
        else:
            assert ours["log_probability"] == pytest.approx(theirs.log_probability, rel=1e-5, abs=1e-4)
    stream = model.stream(policy="greedy")
    assert streamed == stream.read("fade") + stream.finish()


def test_the_small_command_predicts_every_line(exported, tmp_path):
    run, folder = exported
    (tmp_path / "words.txt").write_text("fade\n\nbeg cab\n")
    module = "import runpy\nsys.argv[0] = 'lite'\nrunpy.run_module('antiphon.lite', run_name='__main__')"
    wanted = package.load(run, device="cpu").predict(["fade", "", "beg cab"], nbest=2)
    done = run_hidden(module, folder, tmp_path / "words.txt")
    assert done.stdout.splitlines() == [each.text or "" for each in wanted]
    done = run_hidden(module, folder, "--nbest", 2, stdin="fade\n")
    assert [line.split("\t")[2] for line in done.stdout.splitlines()] == [each.text for each in wanted[0].nbest]
    done = run_hidden(module, folder, "--json", stdin="fade\n")
    assert json.loads(done.stdout)["source_symbols"] == [*"fade", "</s>"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such-folder"], "no-such-folder: no lite.json in it, expected a folder that antiphon export wrote"),
        (["--nbest", "0"], "nbest = 0: expected a whole number, at least 1"),
        (["no-such-file"], "no-such-file"),
    ],
)
def test_the_small_command_answers_mistakes_with_a_sentence(exported, arguments, message):
    module = "import runpy\nsys.argv[0] = 'lite'\nrunpy.run_module('antiphon.lite', run_name='__main__')"
    folder = [] if arguments == ["no-such-folder"] else [exported[1]]
    done = run_hidden(module, *folder, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("antiphon.lite: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_lack_of_memory_in_the_small_command_is_a_sentence(monkeypatch, capsys):
    def exhausted(_):
        raise MemoryError

    monkeypatch.setattr(lite_command, "predict", exhausted)
    monkeypatch.setattr(sys, "argv", ["lite", "en"])
    assert lite_command.main() == 2
    assert capsys.readouterr().err.startswith("antiphon.lite: out of memory, expected ")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("$LITE $FOLDER <&-", "standard input: closed, expected text to read"),
        ("$LITE $FOLDER <<< fade >&-", "standard output: closed, expected to write there"),
        ("$LITE $FOLDER <<< fade > /dev/full", "standard output: no space left on device, expected to write there"),
        ("$LITE $FOLDER --beam x", "argument --beam: invalid int value: 'x'; python -m antiphon.lite --help says"),
    ],
)
def test_streams_and_arguments_of_the_small_command_are_refused_in_a_sentence(exported, line, message):
    environment = os.environ | {"LITE": f"{sys.executable} -m antiphon.lite", "FOLDER": str(exported[1])}
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, check=False, env=environment, timeout=100
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"antiphon.lite: {message}")
    assert done.stderr.count("\n") == 1


def test_the_small_command_reads_unknown_features_if_it_may(tmp_path):
    export_run(write_run(tmp_path / "run", "inflection"), tmp_path / "lite")
    command = [sys.executable, "-m", "antiphon.lite", tmp_path / "lite"]
    results = [
        subprocess.run([*command, *options], input=b"fade\tX\n", capture_output=True, check=False, timeout=100)
        for options in ([], ["--allow-unknown-features"])
    ]
    assert [each.returncode for each in results] == [2, 0]
    assert b"feature X was never seen in training" in results[0].stderr


def test_the_command_and_the_python_api_say_what_to_install():
    done = run_hidden("from antiphon.__main__ import main\nmain()")
    assert done.returncode == 2
    assert done.stderr == (
        "antiphon: the command antiphon needs torch, expected it installed: pip install -e '.[torch]' in a checkout of "
        "Antiphon; antiphon pronounce works without it, and exported models need only antiphon.lite\n"
    )
    done = run_hidden(
        "import antiphon\ntry:\n    antiphon.load\nexcept antiphon.AntiphonError as error:\n    print(error)"
    )
    assert done.stdout == (
        "antiphon.load needs torch, expected it installed: pip install -e '.[torch]' in a checkout of Antiphon\n"
    )


@pytest.mark.slow
def test_a_plain_installation_has_no_pytorch_and_pronounces(exported, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    python = tmp_path / "env/bin/python"
    install = [python, "-m", "pip", "install", "--quiet", "--constraint", "constraints.txt", "."]
    subprocess.run(install, check=True, cwd=ROOT)
    listed = subprocess.run([python, "-m", "pip", "list"], capture_output=True, text=True, check=True).stdout
    assert "onnxruntime" in listed
    assert "torch" not in listed
    run, folder = exported
    predict = [python, "-I", "-m", "antiphon.lite", folder]
    done = subprocess.run(predict, input="fade\n", capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == package.load(run, device="cpu").predict(["fade"])[0].text
    done = subprocess.run([tmp_path / "env/bin/antiphon"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert "pip install -e '.[torch]'" in done.stderr
    say = [tmp_path / "env/bin/antiphon", "pronounce", "--line", "12 floofs"]
    done = subprocess.run(say, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "T W EH1 L V | F L UW1 F S\n"
