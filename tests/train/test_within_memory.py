"""A batch that does not fit into memory is computed in parts, and training goes on as if it had fitted."""

import io
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from antiphon.data.batch import Batch
from antiphon.data.vocab import PAD
from antiphon.exceptions import RunError
from antiphon.ranking.question_batches import MatchCorpus
from antiphon.recipe.recipe_file import load_recipe
from antiphon.runs.kinds import log_prob
from antiphon.train import module
from antiphon.train.fit import train
from antiphon.train.module import GenerationTraining
from antiphon.train.step import RunningAverage
from antiphon.train.within_memory import MemoryBound, WithinMemory
from tests.toy import write_pairs

SMALL = [
    "model.hidden_size=12",
    "train.max_epochs=3",
    "train.passes=1",
    "train.learning_rate=0.01",
    "train.average=0.9",
]


@pytest.fixture
def recipe(tmp_path):
    write_pairs(tmp_path / "train.tsv", 120, 1)
    write_pairs(tmp_path / "dev.tsv", 20, 2)
    (tmp_path / "recipe.toml").write_text('[data]\ntrain = "train.tsv"\ndev = "dev.tsv"\n')
    return lambda *settings: load_recipe(tmp_path / "recipe.toml", [*SMALL, *settings])


class Memory:
    """Takes the place of the loss: fails above a number of cells, and notes every pair that was learnt from."""

    def __init__(self, monkeypatch, cells, when="forward"):
        self.cells, self.when, self.learnt = cells, when, defaultdict(list)
        self.losses = GenerationTraining.losses
        monkeypatch.setattr(GenerationTraining, "losses", lambda module, batch: self.limited(module, batch))

    def limited(self, module, batch):
        too_large = np.prod(batch.sizes) > self.cells
        if too_large and self.when == "forward":
            torch.rand(3)
            raise torch.OutOfMemoryError("CUDA out of memory")
        losses = self.losses(module, batch)
        if too_large:
            losses.register_hook(fail)
        else:
            for source, target in zip(batch.source.tolist(), batch.target.tolist(), strict=True):
                self.learnt[module.epoch].append([number for number in source + target if number != PAD])
        return losses


def fail(_):
    raise torch.OutOfMemoryError("CUDA out of memory")


def console():
    return Console(file=io.StringIO(), width=300)


def assert_close(one, other):
    weights, others = load_file(one.weights), load_file(other.weights)
    assert weights.keys() == others.keys()
    for name in weights:
        torch.testing.assert_close(weights[name], others[name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("when", ["forward", "backward"])
def test_training_in_parts_takes_the_same_steps(recipe, tmp_path, monkeypatch, when):
    settings = recipe("model.dropout=0", "model.tie=none")
    whole = train(settings, tmp_path / "whole", console=console())
    memory = Memory(monkeypatch, 900, when)
    parts = train(settings, tmp_path / "parts", console=(said := console()))
    assert_close(whole, parts)
    losses = [[float(line.split(",")[1]) for line in run.log.read_text().splitlines()[1:]] for run in (whole, parts)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    lines = [line for line in said.file.getvalue().splitlines() if "out of memory" in line]
    assert 1 <= len(lines) <= 2
    assert lines[0].startswith("out of memory at 32 pairs x ")
    first, second, third = (sorted(memory.learnt[epoch]) for epoch in range(3))
    assert len(first) == 120
    assert first == second == third


def test_batches_keep_to_the_bound_once_it_is_found(recipe, tmp_path, monkeypatch):
    failures = []
    memory = Memory(monkeypatch, 300)
    limited = memory.limited

    def count_failures(module, batch):
        try:
            return limited(module, batch)
        except torch.OutOfMemoryError:
            failures.append(batch.sizes)
            raise

    memory.limited = count_failures
    train(recipe(), tmp_path / "run", console=(said := console()))
    lines = [line for line in said.file.getvalue().splitlines() if "out of memory" in line]
    assert len(failures) == len(lines) <= 5
    bounds = [int(line.split("at most ")[1].split()[0].replace(",", "")) for line in lines]
    assert bounds == sorted(set(bounds), reverse=True)


def test_training_in_parts_is_repeatable(recipe, tmp_path, monkeypatch):
    Memory(monkeypatch, 700)
    one, again = (train(recipe("model.dropout=0.4"), tmp_path / name, console=console()) for name in ("one", "again"))
    assert one.weights.read_bytes() == again.weights.read_bytes()


def test_a_resumed_run_computes_the_same_parts(recipe, tmp_path, monkeypatch):
    settings = recipe("model.dropout=0.4")
    Memory(monkeypatch, 700)
    whole = train(settings, tmp_path / "whole", console=console())
    losses = GenerationTraining.losses

    def killed(module, batch):
        if module.epoch == 1:
            raise KeyError("killed")
        return losses(module, batch)

    with monkeypatch.context() as patch:
        patch.setattr(GenerationTraining, "losses", killed)
        with pytest.raises(KeyError):
            train(settings, tmp_path / "killed", console=console())
    resumed = train(settings, tmp_path / "killed", console=(said := console()), resume=True)
    assert "out of memory" not in said.file.getvalue()
    assert whole.weights.read_bytes() == resumed.weights.read_bytes()


def test_a_pair_that_does_not_fit_ends_training_with_a_remedy_and_a_whole_checkpoint(recipe, tmp_path, monkeypatch):
    whole = train(recipe(), tmp_path / "whole", console=console())
    losses = GenerationTraining.losses

    def no_memory_in_the_last_epoch(module, batch):
        if module.epoch == 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return losses(module, batch)

    with monkeypatch.context() as patch:
        patch.setattr(GenerationTraining, "losses", no_memory_in_the_last_epoch)
        with pytest.raises(
            RunError, match=r"single pair of \d+ source and \d+ target tokens .* data\.max_cells, data\.max_source"
        ):
            train(recipe(), tmp_path / "poor", console=console())
    assert_close(whole, train(recipe(), tmp_path / "poor", console=console(), resume=True))


@pytest.mark.parametrize("metric", ["perplexity", "accuracy"])
def test_validation_in_parts_measures_the_same(recipe, tmp_path, monkeypatch, metric):
    settings = recipe(f"train.dev_metric={metric}")
    whole = train(settings, tmp_path / "whole", console=console())

    def limited(model, batch):
        if np.prod(batch.sizes) > 300:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return log_prob(model, batch)

    monkeypatch.setattr(module, "log_prob", limited)
    parts = train(settings, tmp_path / "parts", console=(said := console()))
    assert said.file.getvalue().count("out of memory") <= 4
    assert "out of memory at 20 pairs" in said.file.getvalue()
    of_whole, of_parts = ([line.split(",") for line in run.log.read_text().splitlines()[1:]] for run in (whole, parts))
    assert [row[1] for row in of_whole] == [row[1] for row in of_parts]
    assert [float(row[2]) for row in of_whole] == pytest.approx([float(row[2]) for row in of_parts], rel=1e-5)


def test_memory_that_runs_out_between_epochs_is_said_in_one_sentence(recipe, tmp_path, monkeypatch):
    def validate(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(GenerationTraining, "on_validation_epoch_end", validate)
    with pytest.raises(RunError, match=r"run: out of memory; the last checkpoint is whole"):
        train(recipe(), tmp_path / "run", console=console())


def test_other_errors_are_not_taken_for_a_lack_of_memory(recipe, tmp_path, monkeypatch):
    def broken(*_):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(GenerationTraining, "losses", broken)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        train(recipe(), tmp_path / "run", console=console())


def test_a_batch_of_questions_is_cut_into_parts_with_the_questions_they_need():
    corpus = MatchCorpus(
        [np.array([5]), np.array([6, 7]), np.array([8])],
        [np.array([n, n + 1]) for n in range(10, 15)],
        np.array([0, 0, 1, 2, 2]),
        np.array([1, 0, 1, 0, 1], np.float32),
    )
    whole = corpus.batch(np.arange(5))
    parts = whole.parts(2)
    assert [part.sizes for part in parts] == [(2, 2, 2), (2, 2, 2), (1, 2, 2)]
    assert [len(part.questions) for part in parts] == [1, 2, 1]
    for name in ("sentences", "sentence_lengths", "labels"):
        assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(whole, name))
    asked = torch.cat([part.questions[part.question] for part in parts])
    assert torch.equal(asked, whole.questions[whole.question])


def test_recordings_go_before_batches_are_cut(capsys):
    """They take memory of their own, so a batch may fit as a whole without them."""
    learnt, bound = [], MemoryBound()
    step = SimpleNamespace(
        model=torch.nn.Linear(1, 1),
        optimiser=SimpleNamespace(zero_grad=lambda: None),
        gradients=learnt.append,
        update=lambda: None,
    )
    batch = Batch.of([[4, 5]] * 3, [[4]] * 3)
    WithinMemory(step, bound, recorded=SimpleNamespace(prepare=fail))(batch)
    assert [len(parts) for parts in learnt] == [1]
    assert bound.max_cells is None
    assert capsys.readouterr().out == "out of memory: steps are no longer recorded, which is slower but takes less\n"


@pytest.mark.parametrize("place", ["optimiser", "average"])
def test_memory_that_runs_out_once_weights_may_have_moved_never_moves_them_twice(recipe, tmp_path, monkeypatch, place):
    """The step ends training at its last checkpoint, from where it goes on as if nothing had happened."""
    whole = train(recipe(), tmp_path / "whole", console=console())
    steps = []

    def fail_after(method):
        def failing(*arguments, **options):
            result = method(*arguments, **options)
            steps.append(place)
            if len(steps) == 6:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return result

        return failing

    with monkeypatch.context() as patch:
        owner, name = (torch.optim.Adam, "step") if place == "optimiser" else (RunningAverage, "follow")
        patch.setattr(owner, name, fail_after(getattr(owner, name)))
        with pytest.raises(RunError, match=r"out of memory; the last checkpoint is whole"):
            train(recipe(), tmp_path / "poor", console=console())
    assert len(steps) == 6
    resumed = train(recipe(), tmp_path / "poor", console=console(), resume=True)
    assert whole.weights.read_bytes() == resumed.weights.read_bytes()
