"""Settings and fixtures for every test: one thread, and hypothesis examples that are the same each time."""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook

# Every shape written in a signature of these packages is checked whenever a test calls it.
install_import_hook(["antiphon.lattice", "antiphon.nn", "antiphon.models"], "beartype.beartype")

torch.set_num_threads(1)
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def toy_run(tmp_path_factory):
    """The toy recipe, trained once through the real command in a process of its own."""
    out = tmp_path_factory.mktemp("runs") / "toy"
    command = [sys.executable, "-m", "antiphon", "train", "toy", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent.parent)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture
def antiphon(monkeypatch, capsys):
    """Runs a command in this process and gives its exit status, standard output and standard error."""

    def run(*arguments, stdin=b""):
        from antiphon.cli import main

        monkeypatch.setattr("sys.argv", ["antiphon", *map(str, arguments)])
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as exit_:
            main()
        captured = capsys.readouterr()
        return Result(exit_.value.code or 0, captured.out, captured.err)

    return run


class Result(NamedTuple):
    status: int
    out: str
    err: str
