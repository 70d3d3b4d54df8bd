"""Settings and fixtures for every test: one thread, and hypothesis examples that are the same each time.

Triton kernels run on the GPU, if there is one; otherwise Triton's interpreter runs them line by line.
"""

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

# Shapes written in signatures are checked whenever a test calls a function of these modules; not in Triton's kernels,
# whose source is compiled.
PACKAGE = Path(__file__).parent.parent / "src/antiphon"
SHAPED = [
    f"antiphon.{folder}.{path.stem}"
    for folder in ("lattice", "nn", "models", "ranking")
    for path in (PACKAGE / folder).glob("[!_]*.py")
    if "jaxtyping" in path.read_text(encoding="utf-8") and not path.stem.endswith("_triton")
]
install_import_hook(SHAPED, "beartype.beartype")

torch.set_num_threads(1)
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined
NEEDS_GPU = "needs a GPU"
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("repeatable")


def pytest_collection_modifyitems(items):
    """Starts with the longest test, and skips tests that need a GPU where there is none."""
    items.sort(key=lambda item: item.get_closest_marker("longest") is None)
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason=NEEDS_GPU))


def pytest_terminal_summary(terminalreporter):
    """Names how many tests were skipped for want of a GPU."""
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if NEEDS_GPU in str(report.longrepr)]
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} tests need a GPU: run `make test-gpu` on a machine that has one")


@pytest.fixture(scope="session")
def toy_run(tmp_path_factory):
    """The toy recipe, trained once through the real command in a process of its own."""
    out = tmp_path_factory.mktemp("runs") / "toy"
    command = [sys.executable, "-m", "antiphon", "train", "toy", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent.parent)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture
def device():
    """Where kernels are tested."""
    return "cuda" if torch.cuda.is_available() else "cpu"


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
