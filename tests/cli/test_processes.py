"""``predict --processes`` gives what one process gives."""

import shutil
import signal
import subprocess
import sys
from multiprocessing import active_children
from pathlib import Path
from threading import Thread

import pytest

from antiphon.api.workers import predict_in_processes
from antiphon.exceptions import RunError
from antiphon.runs.run_folder import RunFolder
from tests.interrupts import feed_without_end, hear_ctrl_c
from tests.toy import words


@pytest.fixture
def lines():
    return "".join(f"{word}\n" for word in [*words(70, seed=5), "", *words(80, seed=6)]).encode()


@pytest.fixture
def small_windows(monkeypatch):
    """Few inputs in memory at a time, so that a short file needs several turns."""
    monkeypatch.setattr("antiphon.torch_free.prediction.LINES_AT_ONCE", 40)


@pytest.mark.usefixtures("small_windows")
def test_two_processes_write_what_one_writes(toy_run, antiphon, lines):
    command = ["predict", toy_run, "--format", "jsonl", "--nbest", "2"]
    one, two = (antiphon(*command, "--processes", number, stdin=lines) for number in (1, 2))
    assert two.out.count("\n") == 151
    assert (two.status, two.out) == (one.status, one.out)  # on a busy machine, standard error has notes on progress


@pytest.mark.usefixtures("small_windows")
def test_a_wrong_line_is_named_and_the_lines_long_before_it_are_answered(toy_run, antiphon, lines):
    one, two = (antiphon("predict", toy_run, "--processes", number, stdin=lines + b"a\tb\tc\td\n") for number in (1, 2))
    assert two == one
    assert (two.status, two.out.count("\n")) == (2, 120)
    assert two.err.startswith("antiphon: standard input:152: 4 columns, expected source")


def test_the_same_in_python(toy_run):
    predictions = predict_in_processes(toy_run, ["badu", "", "dagibu"], processes=1)
    assert [prediction.text for prediction in predictions] == ["baaduun", None, "daagiibuun"]


def test_what_a_process_cannot_do_is_said_here(toy_run, tmp_path):
    shutil.copytree(toy_run, tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    with pytest.raises(RunError, match=r"model\.safetensors"):
        list(predict_in_processes(tmp_path / "run", ["badu"], processes=1))
    with pytest.raises(RunError, match=r"none: no such folder, expected a run folder"):
        list(predict_in_processes(tmp_path / "none", ["badu"], processes=1))


@pytest.mark.usefixtures("small_windows")
def test_the_end_of_a_process_is_noticed(toy_run):
    predictions = predict_in_processes(toy_run, words(5000), processes=1)
    next(predictions)
    for process in active_children():
        process.kill()
    with pytest.raises(RunError, match=r"--processes: a process died, .* use fewer"):
        list(predictions)


def test_weights_are_loaded_by_the_processes_alone(toy_run, monkeypatch):
    def fail(*_):
        raise AssertionError

    monkeypatch.setattr(RunFolder, "load_module", fail)
    assert [each.text for each in predict_in_processes(toy_run, ["badu"], processes=1)] == ["baaduun"]


def test_ctrl_c_ends_all_processes(toy_run):
    command = [sys.executable, "-m", "antiphon", "predict", str(toy_run), "--beam", "1", "--processes", "2"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, **pipes, preexec_fn=hear_ctrl_c) as process:
        Thread(target=feed_without_end, args=(process.stdin,), daemon=True).start()
        assert process.stdout.readline() == b"baaduun\n"
        started = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(signal.SIGINT)
        notes = process.communicate(timeout=60)[1].splitlines()
    assert [note for note in notes if not note.endswith(b"per second")] == []
    assert process.returncode == 130
    assert len(started) >= 2
    assert not [number for number in started if is_python(number)]


def is_python(number):
    try:
        return b"spawn_main" in Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return False
