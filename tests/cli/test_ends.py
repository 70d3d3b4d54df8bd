"""Commands that are stopped end cleanly, and nothing that is whole is lost."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.training.state import load_checkpoint
from tests.interrupts import hear_ctrl_c
from tests.toy import write_pairs

ROOT = Path(__file__).parent.parent.parent


def start(*arguments, **options):
    command = [sys.executable, "-m", "antiphon", *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, cwd=ROOT, bufsize=0, **options)


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
from antiphon.exceptions import raise_on_signals

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
