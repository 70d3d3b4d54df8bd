"""Steps captured for few batch shapes are the same steps as without, whatever captures and replays them."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from antiphon.data.batch import Batch
from antiphon.models.transducer import Transducer
from antiphon.training import step
from antiphon.training.distributed import BatchShard
from antiphon.training.optimisation import EMA
from antiphon.training.step import (
    CaptureError,
    CudaGraphStep,
    MicroBatchLimit,
    OutOfMemoryRetry,
    Step,
    negative_log_likelihood,
)
from tests.networks import build_network


class OnHost:
    """Graphs that run on the host: what is captured runs when it is replayed, on the batch that lies in its place."""

    device = torch.device("cpu")

    def __init__(self):
        self.captured = self.replayed = 0

    def capture_stream(self):
        return nullcontext()

    def capture(self, compute):
        self.captured += 1

        def replay():
            self.replayed += 1
            return compute()

        return replay


def new_step():
    torch.manual_seed(1)
    model = build_network(Transducer, 9, 8).double()
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    return Step(model, negative_log_likelihood, optimiser, clip=1.0, ema=EMA(model, 0.5))


def draw_batches(number):
    draw = np.random.default_rng(1)
    for _ in range(number):
        pairs = int(draw.integers(1, 5))
        sides = [[draw.integers(4, 8, draw.integers(1, 9)) for _ in range(pairs)] for _ in range(2)]
        yield Batch.of(*sides)


def test_captured_steps_are_the_steps_that_they_replace():
    eager, graphs = new_step(), OnHost()
    step = new_step()
    replayed = CudaGraphStep(step, batch_size=4, graphs=graphs)
    for batch in draw_batches(24):
        one, other = eager(batch), replayed(batch)
        torch.testing.assert_close(one.loss, other.loss)
        assert one.pairs == other.pairs
    for ours, theirs in zip(step.ema.parameters(), eager.ema.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert 0 < graphs.captured < graphs.replayed < 24


def test_each_shape_runs_once_is_captured_once_and_then_replayed():
    graphs = OnHost()
    steps = CudaGraphStep(new_step(), batch_size=4, graphs=graphs)
    counted = []
    for _ in range(4):
        steps(Batch.of([[4, 5]] * 2, [[4]] * 2))
        counted.append((graphs.captured, graphs.replayed))
    assert counted == [(0, 0), (1, 1), (1, 2), (1, 3)]


def test_no_more_shapes_are_captured_than_allowed(monkeypatch):
    monkeypatch.setattr(step, "_MAX_GRAPHS", 1)
    graphs = OnHost()
    steps = CudaGraphStep(new_step(), batch_size=4, graphs=graphs)
    for length in (2, 7, 2, 7, 2, 7):
        steps(Batch.of([[4] * length], [[4] * length]))
    assert (graphs.captured, graphs.replayed) == (1, 2)


@pytest.mark.parametrize(
    ("lengths", "shape"), [((1, 1, 1), (2, 4, 4)), ((3, 3, 4), (4, 4, 8)), ((5, 63, 64), (6, 64, 72))]
)
def test_batches_are_padded_to_few_shapes(lengths, shape):
    """Lengths here are without end symbols; a batch of eight is padded in quarters."""
    pairs, source, target = lengths
    steps = CudaGraphStep(new_step(), batch_size=8, graphs=OnHost())
    assert steps._shape(Batch.of([[4] * source] * pairs, [[4] * target] * pairs)) == shape


def test_a_capture_that_runs_out_of_memory_leaves_the_weights_to_the_retry():
    class Full(OnHost):
        def capture(self, compute):
            raise torch.OutOfMemoryError("CUDA out of memory")

    eager, step, said = new_step(), new_step(), []
    limit = MicroBatchLimit(said.append)
    steps = OutOfMemoryRetry(step, limit, CudaGraphStep(step, batch_size=4, graphs=Full()))
    batch = Batch.of([[4, 5]] * 3, [[4]] * 3)
    for _ in range(3):
        torch.testing.assert_close(eager(batch).loss, steps(BatchShard(batch, 3, 3)).loss)
    for ours, theirs in zip(step.model.parameters(), eager.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert steps.graph_step is None
    assert said == ["out of memory: steps are no longer captured as CUDA graphs, which is slower but takes less"]


class Uncapturable(OnHost):
    """Graphs for which every step does what cannot be captured."""

    def capture(self, compute):
        raise CaptureError("operation not permitted when stream is capturing")


def test_steps_that_cannot_be_captured_run_eagerly():
    eager, step, said = new_step(), new_step(), []
    graph_step = CudaGraphStep(step, batch_size=4, graphs=Uncapturable())
    retry = OutOfMemoryRetry(step, MicroBatchLimit(said.append), graph_step)
    for batch in draw_batches(24):
        one, other = eager(batch), retry(BatchShard(batch, len(batch.source), len(batch.source)))
        torch.testing.assert_close(one.loss, other.loss)
    assert len(said) == 1
    assert "not permitted when stream is capturing: steps are no longer captured" in said[0]
