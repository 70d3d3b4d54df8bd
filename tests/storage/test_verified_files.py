"""Digests: each file is read once per process, and never trusted after it may have changed."""

import hashlib

import pytest

from antiphon.runs.run_folder import RunFolder
from antiphon.storage import files
from antiphon.storage.files import digest_file
from tests.subprocesses import run_python


@pytest.fixture
def hashed(monkeypatch):
    """The names of files that are hashed, all of which count as settled."""
    names = []

    def file_digest(file, kind):
        names.append(file.name)
        return hashlib.new(kind, file.read())

    monkeypatch.setattr(files.hashlib, "file_digest", file_digest)
    monkeypatch.setattr(files, "_SETTLED_SECONDS", -1.0)
    monkeypatch.setattr(files, "_known", {})
    return names


def test_a_run_is_hashed_once_however_often_it_is_opened(toy_run, hashed):
    RunFolder.open(toy_run)
    count = len(hashed)
    assert count >= 4
    RunFolder.open(toy_run)
    assert len(hashed) == count


def test_a_checkpoint_is_verified_only_by_commands_that_read_it(toy_run, hashed):
    def are_known():
        return len({*files._known.values()})

    RunFolder.open(toy_run)
    without = are_known()
    RunFolder.open(toy_run, checkpoint=True)
    assert are_known() == without + (toy_run / "last.ckpt").exists()


def test_a_file_that_has_just_changed_is_hashed_again(tmp_path):
    for text in ("one", "two", "six"):
        (tmp_path / "file").write_text(text)
        assert digest_file(tmp_path / "file").sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_info_needs_no_pytorch(toy_run):
    program = """
import sys
from antiphon.cli import main
sys.argv = ["antiphon", "info", sys.argv[1]]
try:
    main()
except SystemExit as end:
    assert not end.code
assert "torch" not in sys.modules
"""
    run_python(program, toy_run)
