"""A batch that does not fit into memory is computed in parts, and training goes on as if it had fitted."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from antiphon.data.batch import Batch
from antiphon.exceptions import RunError
from antiphon.ranking.question_batches import MatchCorpus
from antiphon.recipe.recipe_file import load_recipe
from antiphon.torch_free.vocab import PAD
from antiphon.training import task
from antiphon.training.distributed import BatchShard
from antiphon.training.fit import train
from antiphon.training.optimisation import EMA
from antiphon.training.step import MicroBatchLimit, OutOfMemoryRetry, negative_log_likelihood
from antiphon.training.task import GenerationValidation
from tests.toy import write_recipe
from tests.training.test_fit import KilledError, kill_in_epoch

__all__ = ["kill_in_epoch"]

SMALL = [
    "model.hidden_size=12",
    "train.max_epochs=3",
    "train.passes=1",
    "train.learning_rate=0.01",
    "train.ema_decay=0.9",
]


@pytest.fixture
def recipe(tmp_path):
    path = write_recipe(tmp_path, 120, 20)
    return lambda *settings: load_recipe(path, [*SMALL, *settings])


@pytest.fixture
def set_loss(monkeypatch):
    """Replaces the loss of models that generate."""
    return lambda loss: monkeypatch.setattr(task, "negative_log_likelihood", loss)


class Memory:
    """A loss that fails above a number of cells, and notes every pair that was learnt from."""

    def __init__(self, cells, when="forward"):
        self.cells, self.when, self.learnt = cells, when, []

    def __call__(self, model, batch):
        too_large = np.prod(batch.sizes) > self.cells
        if too_large and self.when == "forward":
            torch.rand(3)
            raise torch.OutOfMemoryError("CUDA out of memory")
        losses = negative_log_likelihood(model, batch)
        if too_large:
            losses.register_hook(fail)
        else:
            for source, target in zip(batch.source.tolist(), batch.target.tolist(), strict=True):
                self.learnt.append([token for token in source + target if token != PAD])
        return losses


def out_of_memory_after(batches):
    """A loss that fails after a number of batches."""
    done = []

    def loss(model, batch):
        if len(done) >= batches:
            raise torch.OutOfMemoryError("CUDA out of memory")
        done.append(1)
        return negative_log_likelihood(model, batch)

    return loss


def fail(_):
    raise torch.OutOfMemoryError("CUDA out of memory")


def assert_close(one, other):
    weights, others = load_file(one.weights), load_file(other.weights)
    assert weights.keys() == others.keys()
    for name in weights:
        torch.testing.assert_close(weights[name], others[name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("when", ["forward", "backward"])
def test_training_in_parts_takes_the_same_steps(recipe, tmp_path, set_loss, when):
    unchanged = "model.copy_unknown=false", "train.hidden_sources=0"  # so that no pair changes from epoch to epoch
    settings = recipe("model.dropout=0", *unchanged)
    whole = train(settings, tmp_path / "whole")
    set_loss(memory := Memory(900, when))
    parts = train(settings, tmp_path / "parts", say=(said := []).append)
    assert_close(whole, parts)
    losses = [[float(line.split(",")[1]) for line in run.log.read_text().splitlines()[1:]] for run in (whole, parts)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    lines = [line for line in said if "out of memory" in line]
    assert 1 <= len(lines) <= 2
    assert lines[0].startswith("out of memory at 32 pairs x ")
    first, second, third = (sorted(memory.learnt[start : start + 120]) for start in (0, 120, 240))
    assert len(memory.learnt) == 360
    assert first == second == third


def test_batches_keep_to_the_limit_once_it_is_found(recipe, tmp_path, set_loss):
    failures, memory = [], Memory(300)

    def count_failures(model, batch):
        try:
            return memory(model, batch)
        except torch.OutOfMemoryError:
            failures.append(batch.sizes)
            raise

    set_loss(count_failures)
    train(recipe(), tmp_path / "run", say=(said := []).append)
    lines = [line for line in said if "out of memory" in line]
    assert len(failures) == len(lines) <= 5
    limits = [int(line.split("at most ")[1].split()[0].replace(",", "")) for line in lines]
    assert limits == sorted(set(limits), reverse=True)


def test_training_in_parts_is_repeatable(recipe, tmp_path, set_loss):
    set_loss(Memory(700))
    one, again = (train(recipe("model.dropout=0.4"), tmp_path / name) for name in ("one", "again"))
    assert one.weights.read_bytes() == again.weights.read_bytes()


def test_a_resumed_run_computes_the_same_parts(recipe, tmp_path, set_loss, kill_in_epoch):
    settings = recipe("model.dropout=0.4")
    set_loss(Memory(700))
    whole = train(settings, tmp_path / "whole")
    come_back = kill_in_epoch(1)
    with pytest.raises(KilledError):
        train(settings, tmp_path / "killed")
    come_back()
    resumed = train(settings, tmp_path / "killed", say=(said := []).append, resume=True)
    assert "out of memory" not in "\n".join(said)
    assert whole.weights.read_bytes() == resumed.weights.read_bytes()


def test_a_pair_that_does_not_fit_ends_training_with_a_remedy_and_a_whole_checkpoint(recipe, tmp_path, set_loss):
    whole = train(recipe(), tmp_path / "whole")
    set_loss(out_of_memory_after(9))
    with pytest.raises(
        RunError, match=r"single pair of \d+ source and \d+ target tokens .* data\.max_cells, data\.max_source"
    ):
        train(recipe(), tmp_path / "poor")
    set_loss(negative_log_likelihood)
    assert_close(whole, train(recipe(), tmp_path / "poor", resume=True))


@pytest.mark.parametrize("metric", ["perplexity", "accuracy"])
def test_validation_in_micro_batches_gives_the_same_metrics(recipe, tmp_path, monkeypatch, metric):
    settings = recipe(f"train.dev_metric={metric}")
    whole = train(settings, tmp_path / "whole")

    measure = GenerationValidation._measure

    def limited(validation, model, batch):
        if np.prod(batch.sizes) > 300:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return measure(validation, model, batch)

    monkeypatch.setattr(GenerationValidation, "_measure", limited)
    parts = train(settings, tmp_path / "parts", say=(said := []).append)
    assert "\n".join(said).count("out of memory") <= 4
    assert "out of memory at 20 pairs" in "\n".join(said)
    of_whole, of_parts = ([line.split(",") for line in run.log.read_text().splitlines()[1:]] for run in (whole, parts))
    assert [row[1] for row in of_whole] == [row[1] for row in of_parts]
    assert [float(row[2]) for row in of_whole] == pytest.approx([float(row[2]) for row in of_parts], rel=1e-5)


def test_memory_that_runs_out_between_epochs_is_said_in_one_sentence(recipe, tmp_path, monkeypatch):
    def validate(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(GenerationValidation, "_score", validate)
    with pytest.raises(RunError, match=r"run: out of memory; no checkpoint was saved yet"):
        train(recipe(), tmp_path / "run")


def test_other_errors_are_not_taken_for_a_lack_of_memory(recipe, tmp_path, set_loss):
    def broken(*_):
        raise RuntimeError("shapes do not match")

    set_loss(broken)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        train(recipe(), tmp_path / "run")


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


def test_cuda_graphs_are_released_before_batches_are_split():
    """They take memory of their own, so a batch may fit as a whole without them."""
    learnt, said = [], []
    step = SimpleNamespace(
        model=torch.nn.Linear(1, 1),
        optimiser=SimpleNamespace(zero_grad=lambda: None),
        prepare=lambda parts, weight: lambda: learnt.append((len(parts), weight)),
    )
    limit = MicroBatchLimit(said.append)
    batch = Batch.of([[4, 5]] * 4, [[4]] * 4)
    OutOfMemoryRetry(step, limit, SimpleNamespace(prepare=fail))(BatchShard(batch, 4, 4))
    assert learnt == [(1, 0.25)]
    assert limit.max_cells is None
    assert said == ["out of memory: steps are no longer captured as CUDA graphs, which is slower but takes less"]


@pytest.mark.parametrize("place", ["optimiser", "ema"])
def test_memory_that_runs_out_once_weights_may_have_moved_never_moves_them_twice(recipe, tmp_path, monkeypatch, place):
    """The step ends training at its last checkpoint, from where it resumes as if nothing had happened."""
    whole = train(recipe(), tmp_path / "whole")
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
        owner, name = (torch.optim.Adam, "step") if place == "optimiser" else (EMA, "update_parameters")
        patch.setattr(owner, name, fail_after(getattr(owner, name)))
        with pytest.raises(RunError, match=r"out of memory; the last checkpoint is complete"):
            train(recipe(), tmp_path / "poor")
    assert len(steps) == 6
    resumed = train(recipe(), tmp_path / "poor", resume=True)
    assert whole.weights.read_bytes() == resumed.weights.read_bytes()
