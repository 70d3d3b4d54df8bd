"""Training on a GPU: captured steps, precisions, and memory that runs out."""

import numpy as np
import pytest
import torch

from antiphon.data.batch import Batch
from antiphon.models.recurrent import LanguageModel
from antiphon.recipe.recipe_file import find_recipe, load_recipe
from antiphon.training.distributed import BatchShard
from antiphon.training.fit import train
from antiphon.training.optimisation import EMA
from antiphon.training.step import (
    CudaGraphStep,
    MicroBatchLimit,
    OutOfMemoryRetry,
    Step,
    negative_log_likelihood,
    smoothed_loss,
)
from tests.decode.small_models import MODELS, features_of, small_model
from tests.networks import build_network
from tests.toy import write_pairs

pytestmark = pytest.mark.gpu


def draw_batches(count):
    draw = np.random.default_rng(1)
    for _ in range(count):
        pairs = int(draw.integers(1, 5))
        sources, targets = ([draw.integers(4, 8, draw.integers(1, 9)) for _ in range(pairs)] for _ in range(2))
        yield Batch.of(sources, targets, [features_of(source) for source in sources])


def new_step(name, loss=negative_log_likelihood):
    model = small_model(name, scale=1.0, target_size=8).float().cuda().train()
    rate = torch.tensor(0.01, device="cuda")
    optimiser = torch.optim.Adam(model.parameters(), rate, fused=True, capturable=True)
    return Step(model, loss, optimiser, clip=1.0, ema=EMA(model, 0.5))


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        *((name, negative_log_likelihood) for name in MODELS),
        *((name, smoothed_loss(0.1)) for name in ("transducer", "transformer")),
    ],
    ids=[*MODELS, "label_smoothing", "label_smoothing_of_a_transformer"],
)
def test_steps_captured_as_cuda_graphs_are_the_steps_that_they_replace(name, loss):
    eager, step = new_step(name, loss), new_step(name, loss)
    replayed = CudaGraphStep(step, batch_size=4)
    for batch in draw_batches(24):
        one, other = eager(batch.to(torch.device("cuda"))), replayed(batch)
        torch.testing.assert_close(one.loss, other.loss, rtol=1e-3, atol=1e-3)
        assert one.pairs == other.pairs
    assert replayed._captured
    averages = [each.ema.module.eval() for each in (step, eager)]
    for batch in draw_batches(
        4
    ):  # not weights: those without a gradient, such as biases of keys, follow rounding errors
        ours, theirs = (average(batch.to(torch.device("cuda"))) for average in averages)
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-2)


def test_a_step_that_cannot_be_captured_runs_eagerly():
    step, said = new_step("transducer", lambda *given: negative_log_likelihood(*given) * synchronised()), []
    retry = OutOfMemoryRetry(step, MicroBatchLimit(said.append), CudaGraphStep(step, batch_size=4))
    for batch in draw_batches(24):
        assert retry(BatchShard(batch, len(batch.source), len(batch.source))).loss.isfinite()
    assert len(said) == 1
    assert said[0].endswith("steps are no longer captured as CUDA graphs, which is slower")


def test_steps_of_several_cudnn_layers_with_dropout_are_captured():
    model = build_network(LanguageModel, 9, 8, hidden_size=512, layers=2, dropout=0.5).cuda().train()
    optimiser = torch.optim.Adam(model.parameters(), torch.tensor(0.01, device="cuda"), fused=True, capturable=True)
    replayed = CudaGraphStep(Step(model, negative_log_likelihood, optimiser, clip=1.0), batch_size=4)
    for batch in draw_batches(24):
        assert replayed(batch._replace(features=batch.features[:, :0])).loss.isfinite()
    assert replayed._captured


def synchronised():
    """A factor of 1, after waiting for the GPU, which cannot be captured."""
    torch.cuda.synchronize()
    return 1.0


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_the_toy_language_is_learnt_in_every_precision(tmp_path, precision):
    recipe = load_recipe(find_recipe("toy"), [f"train.precision={precision}"])
    run = train(recipe, tmp_path / "run", device="cuda")
    assert run.metrics()["dev_accuracy"] >= 90


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_a_transformer_learns_on_a_gpu(tmp_path, precision):
    settings = [
        "model.kind=transformer",
        "model.layers=2",
        f"train.precision={precision}",
        "train.max_epochs=60",
        "search.rule_weight=0",
    ]
    run = train(load_recipe(find_recipe("toy"), settings), tmp_path / "run", device="cuda")
    assert run.metrics()["dev_accuracy"] >= 70


def test_training_goes_on_in_parts_where_memory_runs_out(tmp_path):
    write_pairs(tmp_path / "train.tsv", 4_000, 1)
    write_pairs(tmp_path / "dev.tsv", 20, 2)
    (tmp_path / "recipe.toml").write_text('[data]\ntrain = "train.tsv"\ndev = "dev.tsv"\n')
    settings = ["train.batch_size=4000", "train.max_batch_cells=1000000000", "train.max_epochs=3", "train.passes=1"]
    recipe = load_recipe(tmp_path / "recipe.toml", settings)
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 2**28) / total)
    try:
        run = train(recipe, tmp_path / "run", device="cuda", say=(said := []).append)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert any("at once from here on" in line for line in said)
    assert run.metrics()["epochs"] == 3
