"""Settings and fixtures for every test: one thread, and hypothesis examples that are the same each time.

What would take most of the time of a small training is left out where it is not what is tested: shapes are checked in
tests of layers, models and decoding and in one training of every kind (with `make test-all` everywhere), `fsync` waits
for the disk in tests of storage alone, and the picture of a training is drawn for the toy run.

Triton kernels run on the GPU, if there is one; otherwise Triton's interpreter runs them line by line.
"""

import io
import os
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import settings
from jaxtyping import config as shape_checks
from jaxtyping import install_import_hook

from tests.page import chromium
from tests.shared_folders import filled_once, run_command

# Shapes in signatures can be checked when a test calls a function of these modules; not in Triton's kernels, whose
# source is compiled.
PACKAGE = Path(__file__).parent.parent / "src/antiphon"
SHAPED = [
    f"antiphon.{folder}.{path.stem}"
    for folder in ("lattice", "nn", "models", "ranking", "decode")
    for path in (PACKAGE / folder).glob("[!_]*.py")
    if "jaxtyping" in path.read_text(encoding="utf-8") and not path.stem.endswith("_triton")
]
install_import_hook(SHAPED, "beartype.beartype")

torch.set_num_threads(1)
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined
NEEDS_GPU = "needs a GPU"
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=25)
settings.register_profile("thorough", deadline=None, derandomize=True, max_examples=200)


WHOLE_COMMANDS = ("cli", "lite", "page", "storage", "training", "tune")
CHECKED_COMMANDS = ("test_align.py", "test_answer_selection.py", "test_kinds.py")
"""Tests of commands in which shapes are checked: a training of every kind is among them."""
FSYNC = os.fsync


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Switches shape checks and ``fsync`` on or off, before the fixtures of a test are made."""
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    of_commands = folder in WHOLE_COMMANDS or folder.endswith(".py")
    everywhere = not item.config.getoption("markexpr")
    shape_checks.update("jaxtyping_disable", of_commands and item.path.name not in CHECKED_COMMANDS and not everywhere)
    os.fsync = FSYNC if folder == "storage" else lambda _: None


@pytest.fixture(scope="session", autouse=True)
def plot_training():
    """The function that draws a training; what replaces it in all trainings leaves an empty file."""
    from antiphon.training import fit

    with pytest.MonkeyPatch.context() as patch:
        drawing = fit.plot_training
        patch.setattr(fit, "plot_training", lambda *arguments: arguments[-1].write_bytes(b""))
        yield drawing


def pytest_configure(config):
    """Chooses how many examples are drawn, and refuses to start without Chromium where it is required."""
    settings.load_profile("repeatable" if config.getoption("markexpr") else "thorough")
    if chromium.is_required() and not chromium.find_chromium():
        raise pytest.UsageError(chromium.HOW)


def pytest_collection_modifyitems(config, items):
    """Starts with the longest test; tests that need a GPU or Chromium are skipped or left out where there is none."""
    if not chromium.find_chromium():
        left_out = [item for item in items if item.get_closest_marker("browser")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: item.get_closest_marker("longest") is None)
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason=NEEDS_GPU))


def pytest_terminal_summary(terminalreporter):
    """Says what was not tested for want of a GPU or of Chromium."""
    if not chromium.find_chromium():
        terminalreporter.write_line(f"not selected: {chromium.HOW}")
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if NEEDS_GPU in str(report.longrepr)]
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} tests need a GPU: run `make test-gpu` on a machine that has one")


@pytest.fixture(scope="session")
def toy_run(tmp_path_factory, plot_training):
    """The toy recipe, trained once through the real command, with its picture."""

    def train(folder):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("antiphon.training.fit.plot_training", plot_training)
            run_command("train", "toy", "--out", folder / "toy")

    return filled_once(tmp_path_factory, "toy", train) / "toy"


@pytest.fixture
def device():
    """Where kernels are tested."""
    return "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def shapes_unchecked():
    """Without the checks of the annotations, which only tests make."""
    before = shape_checks.jaxtyping_disable
    shape_checks.update("jaxtyping_disable", True)
    yield
    shape_checks.update("jaxtyping_disable", before)


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
