"""Processes end together: killed or terminated parents leave none behind, and nothing that is whole is lost.

Nothing here waits for time to pass: a named pipe or a standard stream ends when the last process that has it open ends.
"""

import os
import select
import shlex
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread

import pytest

from antiphon.training.state import load_checkpoint
from tests.interrupts import feed_without_end, hear_ctrl_c
from tests.toy import write_pairs

ROOT = Path(__file__).parent.parent.parent
_PATIENCE = 120
"""Seconds after which a test has failed."""


def start(*arguments, **options):
    command = [sys.executable, "-m", "antiphon", *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, cwd=ROOT, bufsize=0, **options)


@pytest.fixture
def grid(tmp_path):
    """A grid of two trainings that wait for their data, and pipes that lose their readers when those end."""
    (tmp_path / "recipe.toml").write_text('[data]\ndev = "dev.tsv"\n')
    (tmp_path / "dev.tsv").write_text("a\tb\n")
    pipes = [tmp_path / name for name in ("one", "two")]
    for pipe in pipes:
        os.mkfifo(pipe)
    axis = f"data.train={pipes[0]},{pipes[1]}"
    (tmp_path / "temporary").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    options = {"env": environment, "stdin": subprocess.PIPE}
    process = start("grid", tmp_path / "recipe.toml", "--grid", axis, "--out", tmp_path / "grid", **options)
    with process, ThreadPoolExecutor() as pool:
        opened = [pool.submit(os.open, pipe, os.O_WRONLY) for pipe in pipes]  # until a training reads it
        ends = [each.result(_PATIENCE) for each in opened]
        yield process, ends
        process.kill()
    for end in ends:
        os.close(end)


def has_lost_its_reader(end):
    poll = select.poll()
    poll.register(end, 0)
    return bool(poll.poll(_PATIENCE * 1000))


def test_trainings_end_with_a_grid_that_is_killed_and_delete_their_temporary_files(grid, tmp_path):
    process, ends = grid
    assert any((tmp_path / "temporary").iterdir())
    process.kill()
    assert all(has_lost_its_reader(end) for end in ends)
    assert has_lost_its_reader(process.stdin)  # which its trainings share
    assert not any((tmp_path / "temporary").iterdir())


def test_a_grid_that_is_terminated_stops_its_trainings(grid, tmp_path):
    process, ends = grid
    process.terminate()
    _, messages = process.communicate(timeout=_PATIENCE)
    assert all(has_lost_its_reader(end) for end in ends)
    assert process.returncode == 143
    assert b"stopped; the same command resumes it" in b" ".join(messages.split())
    assert not any((tmp_path / "temporary").iterdir())
    assert b"Traceback" not in messages


@pytest.fixture
def told_of_workers(tmp_path):
    """An environment in which a worker says that it has started before it imports anything."""
    os.mkfifo(tmp_path / "started")
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif '--multiprocessing-fork' in sys.argv:\n"
        f"    os.write(os.open({str(tmp_path / 'started')!r}, os.O_WRONLY), b'x')\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    started = os.open(tmp_path / "started", os.O_RDWR)  # so that no worker ever waits for a reader
    yield started, {**os.environ, "PYTHONPATH": path}
    os.close(started)


def test_workers_that_are_still_importing_end_with_a_parent_that_is_killed(toy_run, told_of_workers):
    started, environment = told_of_workers
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with start("predict", toy_run, "--processes", "2", env=environment, **pipes) as process:
        process.stdin.write(b"badu\n" * 5000)
        assert os.read(started, 1) == b"x"
        process.kill()
        assert b"Traceback" not in process.stderr.read()  # until the last process that could write to it has ended


def test_busy_workers_end_with_a_parent_that_is_terminated(toy_run):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with start("predict", toy_run, "--processes", "2", "--beam", "1", **pipes) as process:
        Thread(target=feed_without_end, args=(process.stdin,), daemon=True).start()
        assert process.stdout.readline() == b"baaduun\n"
        process.terminate()
        assert process.stderr.read() == b""
    assert process.returncode == 143


@pytest.mark.parametrize(("signal_", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_training_that_is_terminated_or_gets_ctrl_c_leaves_a_whole_checkpoint(antiphon, tmp_path, signal_, status):
    out, pairs = tmp_path / "run", write_pairs(tmp_path / "train.tsv", 20)
    settings = ["train.max_epochs=10000", "train.patience=10000", "model.hidden_size=8", f"data.train={pairs}"]
    options = [part for setting in settings for part in ("--set", setting)]
    with start("train", "toy", *options, "--out", out, preexec_fn=hear_ctrl_c) as process:
        for line in process.stderr:
            if line.startswith(b"epoch 2/"):
                break
        process.send_signal(signal_)
        messages = process.stderr.read()
    assert process.returncode == status
    resuming = shlex.join(["antiphon", "train", "toy", "--resume", *options, "--out", str(out)])
    assert f"antiphon: {out}: stopped; continue with --resume: {resuming}\n" in messages.decode()
    assert b"Traceback" not in messages
    assert load_checkpoint(out / "last.ckpt")["epochs"] >= 2
    assert "--resume" in antiphon("info", out).out


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGTERM, "Terminated"), (signal.SIGINT, "KeyboardInterrupt")])
def test_a_signal_that_comes_during_an_import_is_not_swallowed_there(tmp_path, number, raised):
    (tmp_path / "swallowing.py").write_text(
        f"import os\ntry:\n    os.kill(os.getpid(), {number:d})\n    sum(range(9))\nexcept BaseException:\n    pass\n"
    )
    program = """
import signal
from antiphon.child_processes import raise_on_signals

def main():
    raise_on_signals()
    try:
        import swallowing
        print("imported")
        signal.pause()
    except KeyboardInterrupt as error:
        print(type(error).__name__)

main()
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(tmp_path)])}
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, timeout=100, preexec_fn=hear_ctrl_c
    )
    assert done.stdout.split() == ["imported", raised], done.stderr


def test_ctrl_c_while_the_command_line_is_imported_prints_nothing():
    program = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "antiphon.cli":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from antiphon.__main__ import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=100,
        preexec_fn=hear_ctrl_c,
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")
