"""What commands load, and how many threads they choose for it."""

import subprocess
import sys

import pytest
import torch

from antiphon.cli.options import load_run, load_runs


@pytest.fixture(autouse=True)
def same_threads_afterwards():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_several_runs_get_the_threads_of_the_largest_in_any_order(toy_run, monkeypatch):
    for sizes in ((3, 1), (1, 3)):
        wanted = iter(sizes)
        monkeypatch.setattr("antiphon.device.choose_threads", lambda *_, wanted=wanted: next(wanted))
        assert len(load_runs([toy_run, toy_run], "cpu", None)) == 2
        assert torch.get_num_threads() == 3


def test_threads_for_a_language_model_follow_from_its_vocabulary(antiphon, tmp_path, monkeypatch):
    settings = ["model.kind=language_model", "train.dev_metric=perplexity", "train.max_epochs=1", "train.passes=1"]
    options = [part for each in settings for part in ("--set", each)]
    assert antiphon("train", "toy", *options, "--out", tmp_path / "lm").status == 0
    sizes = []
    monkeypatch.setattr("antiphon.device.choose_threads", lambda *given: sizes.append(given) or 1)
    model = load_run(tmp_path / "lm", "cpu", None)
    assert [target_size for _, _, target_size in sizes] == [len(model.codec.target.vocab)]


def test_predicting_does_without_the_libraries_of_corpora(toy_run):
    program = (
        f"import sys, antiphon; antiphon.load({str(toy_run)!r}).predict(['ab']); assert 'pyarrow' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
