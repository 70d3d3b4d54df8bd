"""What a dry run says of training is what training then takes."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from antiphon.data.batch import Batch
from antiphon.ranking.matchers import Matcher, build_matcher
from antiphon.ranking.question_batches import MatchBatch
from antiphon.recipe.kinds import KINDS
from antiphon.recipe.model_sections import MatcherSection, TransducerSection
from antiphon.runs.build import build_model
from antiphon.torch_free.codec import Chars, Normalisation, PairCodec, TextCodec
from antiphon.torch_free.vocab import SPECIALS, Vocab
from antiphon.training import task
from antiphon.training.dry_run import estimate_memory
from antiphon.training.optimisation import EMA
from antiphon.training.step import Step, negative_log_likelihood
from tests.networks import optimisation
from tests.toy import write_pairs, write_questions, write_vectors

CLOSE = 0.7, 1.25
"""How far the estimate may be from what was measured, as a factor; buffers inside LSTM operations are not seen."""


def codec_of(size):
    """A codec whose two sides have so many tokens."""
    side = TextCodec(Normalisation(), Chars(), Vocab(map(str, range(size - len(SPECIALS)))))
    return PairCodec(side, side)


def setup_of(model, loss, sample, sizes):
    """An epoch of one batch of these sizes, and of two smaller ones."""
    pairs, rows, columns = sizes
    lengths = np.repeat([rows, 2, rows], [pairs, 1, 1]), np.repeat([columns, columns, 2], [pairs, 1, 1])
    plan = [np.arange(pairs), np.array([pairs]), np.array([pairs + 1])]
    batches = SimpleNamespace(plan=lambda epoch: plan)
    return SimpleNamespace(
        model=model, loss=loss, batches=batches, lengths=lengths, sample=sample, uses_cuda_graphs=True
    )


def measured_peak(make_model, loss, how, batch):
    """The most bytes in use from the making of a model to the end of its second step, as PyTorch's profiler has it."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        model = make_model()
        ema = EMA(model, how.ema_decay) if how.ema_decay else None
        step = Step(model, loss, how.new_optimiser(model), how.clip, ema)
        for _ in range(2):
            step(batch)
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    in_order = sorted(events, key=lambda event: event.start_ns())
    return np.cumsum([event.nbytes() for event in in_order]).max()


def assert_estimate_is_close(make_model, loss, how, sample, sizes):
    expected = estimate_memory(setup_of(make_model(), loss, sample, sizes), how, "cpu")
    assert expected.largest == sizes
    assert expected.batches == 3
    peak = measured_peak(make_model, loss, how, sample(*sizes))
    assert CLOSE[0] < expected.peak / peak < CLOSE[1]


@pytest.mark.parametrize(
    ("sizes", "V", "H", "layers", "how"),
    [
        ((32, 12, 12), 40, 64, 1, optimisation(ema_decay=0.0)),
        ((16, 40, 20), 3000, 32, 1, optimisation(ema_decay=0.9)),
        ((6, 60, 30), 300, 48, 2, optimisation(ema_decay=0.0, optimiser="adagrad")),
    ],
)
@pytest.mark.parametrize("kind", ["transducer", "attention", "encoder_decoder", "transformer", "language_model"])
def test_the_estimate_is_what_a_real_step_takes(kind, sizes, V, H, layers, how):
    def make_model():
        return build_model(KINDS[kind].section(hidden_size=H, layers=layers, dropout=0.5), codec_of(V))

    if kind == "language_model":
        sizes = (sizes[0], 3, sizes[2])
    assert_estimate_is_close(make_model, negative_log_likelihood, how, Batch.sample, sizes)


@pytest.mark.parametrize("sentence", ["bag_of_words", "bigram", "lstm", "lstm_attention"])
def test_the_estimate_of_a_matcher_is_what_a_real_step_takes(sentence):
    vectors, how = torch.randn(500, 50), optimisation(ema_decay=0.0, optimiser="adagrad")

    def make_model():
        return build_matcher(MatcherSection(sentence=sentence, hidden_size=40), vectors.clone(), torch.tensor([5]))

    assert_estimate_is_close(make_model, Matcher.cross_entropy, how, MatchBatch.sample, (32, 9, 30))


def test_the_estimate_takes_the_memory_of_a_few_pairs():
    how = optimisation(ema_decay=0.0)
    model = build_model(TransducerSection(hidden_size=16), codec_of(50))
    made = []

    def sample(*sizes):
        made.append(sizes)
        return Batch.sample(*sizes)

    thousand = estimate_memory(setup_of(model, negative_log_likelihood, sample, (1000, 20, 10)), how, "cpu")
    ten_thousand = estimate_memory(setup_of(model, negative_log_likelihood, sample, (10_000, 20, 10)), how, "cpu")
    assert ten_thousand.step == pytest.approx(10 * thousand.step, rel=0.05)
    assert {pairs for pairs, _, _ in made} == {2, 3}


@pytest.fixture
def recipe(tmp_path):
    write_pairs(tmp_path / "train.tsv", 60, 1)
    write_pairs(tmp_path / "dev.tsv", 10, 2)
    path = tmp_path / "recipe.toml"
    path.write_text(
        '[data]\ntrain = "train.tsv"\ndev = "dev.tsv"\nmax_source_length = 5\n'
        "[model]\nhidden_size = 16\n[train]\nmax_epochs = 1\npasses = 1\nema_decay = 0.9\n"
    )
    return path


def everything_in(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_dry_run_says_what_training_will_take_and_leaves_nothing(antiphon, recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = everything_in(tmp_path)
    result = antiphon("train", recipe, "--dry-run", "--out", tmp_path / "run")
    assert result.status == 0, result.err
    train, dev, *settings, kind, length, parameters, batches, memory, time = result.err.splitlines()
    assert settings[0] == "settings that the recipe leaves unset:"
    assert any(re.fullmatch(r"  model\.dropout +0\.5 +\d+ training pairs, fewer than 5,000", line) for line in settings)
    assert re.fullmatch(r"about [\d.]+ s per epoch, [\d:]+ for all \d+ epochs, without validation", time)
    assert re.fullmatch(r"1 epoch of 2 updates \(each a pass over \d+ pairs\), patience 10", length)
    assert re.fullmatch(r"train: \d+ pairs, dropped: \d+ source too long", train)
    assert (dev, kind) == ("dev: 10 pairs", "transducer, on cpu:")
    sizes = re.fullmatch(
        r"batches in the first epoch: 2, the largest (\d+) pairs x (\d+) rows x (\d+) columns = (.+) cells", batches
    )
    pairs, rows, columns, cells = (int(number.replace(",", "")) for number in sizes.groups())
    assert (pairs <= 32, pairs * rows * columns) == (True, cells)
    assert memory.startswith("about 0.0")
    assert all(part in memory for part in ("weights", "EMA", "optimiser", "gradients and activations"))
    assert everything_in(tmp_path) == before
    assert not (tmp_path / "run").exists()
    run = antiphon("train", recipe, "--out", tmp_path / "run")
    assert f"transducer: {parameters}" in run.err


def test_a_dry_run_does_not_touch_the_run_that_is_there(antiphon, recipe, tmp_path):
    assert antiphon("train", recipe, "--out", tmp_path / "run").status == 0
    before = everything_in(tmp_path)
    assert (
        antiphon("train", recipe, "--dry-run", "--out", tmp_path / "run", "--set", "model.kind=attention").status == 0
    )
    assert everything_in(tmp_path) == before


def test_a_dry_run_works_for_what_ranks_and_for_what_only_counts(antiphon, recipe, tmp_path):
    counted = ["--set", "model.kind=suffix_rule", "--set", "train.dev_metric=accuracy"]
    assert "learns by counting" in antiphon("train", recipe, "--dry-run", *counted).err
    write_questions(tmp_path / "q.tsv", 20)
    write_vectors(tmp_path / "vectors.txt")
    files = [f"data.{name}={tmp_path / 'q.tsv'}" for name in ("train", "dev")] + [
        f"data.vectors={tmp_path / 'vectors.txt'}"
    ]
    for weight in (0, 1):
        chosen = [*files, "train.dev_metric=map", f"train.listwise_weight={weight}"]
        settings = [part for setting in chosen for part in ("--set", setting)]
        result = antiphon("train", "answer-selection", "--dry-run", *settings)
        assert "GiB at the peak" in result.err, result.err


def test_a_dry_run_refuses_what_training_would_refuse(antiphon, recipe, tmp_path):
    (tmp_path / "train.tsv").write_text("a\n")
    result = antiphon("train", recipe, "--dry-run")
    assert result.status == 2
    assert "train.tsv:1: 1 column" in result.err


def test_a_dry_run_without_memory_for_a_few_pairs_says_so(antiphon, recipe, monkeypatch):
    def loss(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(task, "negative_log_likelihood", loss)
    result = antiphon("train", recipe, "--dry-run")
    assert result.status == 2
    assert "antiphon: out of memory: 3 pairs of" in result.err
