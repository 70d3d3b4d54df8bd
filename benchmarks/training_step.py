"""A whole training step (losses, gradients, clipping, Adam): the transducer beside attention and the naive joint.

All models of a size take turns in one process, several rounds, and medians are compared. On a GPU every model runs
both eagerly and as the captured CUDA graph that training uses; on a CPU, one thread. The naive joint is the same
transducer with a log-softmax over all B x I x J x V logits. For words there are more transducers: with a decoder that
attends to the source, one that copies words, both, and one with a tied output layer (``to_plain``: their time divided
by that of the plain one); a quarter of the words of a target are then words of its source, some of them unknown.
torchaudio's RNN-T loss, where it is installed on a GPU machine, is timed on ready logits: the loss and its gradient
alone.

python -m benchmarks.training_step [WORDS ...]        only sizes with this many words, say 20000 69000
"""

import statistics
import sys
import time
from contextlib import contextmanager

import numpy as np
import torch

from antiphon.data.batch import Batch
from antiphon.device import keep_freed_memory
from antiphon.models import transducer
from antiphon.recipe.kinds import KINDS
from antiphon.recipe.sections import TrainSection
from antiphon.torch_free.vocab import UNKNOWN, CopiedWords
from antiphon.training.optimisation import Optimisation
from antiphon.training.step import CudaGraphStep, Step, negative_log_likelihood

SIZES = {
    "cpu": [(32, 12, 12, 40, 128), (32, 50, 25, 20_000, 256)],
    "cuda": [(32, 12, 12, 40, 128), (32, 50, 25, 20_000, 256), (32, 50, 25, 69_000, 256)],
}
TRANSDUCERS = {
    "transducer": {},
    "transducer, context": {"context": "attention"},
    "transducer, copying": {"copy_words": True},
    "transducer, context + copying": {"context": "attention", "copy_words": True},
    "transducer, tied output": {"tie_output": True},
}
OTHERS = ("attention", "encoder_decoder", "naive_joint")
FEW_WORDS = 1_000
"""Vocabularies of fewer tokens are letters, which are neither copied nor attended to."""
NAIVE_LOGITS = {"cpu": 2**28, "cuda": 2**33}
"""The naive joint is left out where it would have more logits than this."""


def measure(words=()):
    set_up_as_training_does()
    return [row for size in SIZES[device()] if not words or size[3] in words for row in measure_size(*size)]


def set_up_as_training_does():
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    keep_freed_memory()


def device():
    return "cuda" if torch.cuda.is_available() else "cpu"


def measure_size(B, I, J, V, H, kinds=None, rounds=5):
    batch = draw_batch(B, I, J, V)
    kinds = kinds or [*(TRANSDUCERS if V >= FEW_WORDS else ["transducer"]), *OTHERS]
    ways = ("captured", "eager") if device() == "cuda" else ("eager",)
    steps = {
        (kind, way): new_step(kind, way, batch, V, H)
        for kind in kinds
        for way in ways
        if (kind != "naive_joint" or NAIVE_LOGITS[device()] > B * I * J * V)
        and (way != "captured" or kind != "naive_joint")
    }
    peaks = {name: peak_gib(step) for name, step in steps.items()}
    times = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            times[name].append(milliseconds(step))
    medians = {name: statistics.median(found) for name, found in times.items()}
    if device() == "cuda" and (rnnt := rnnt_milliseconds(B, I, J, V)):
        medians["RNN-T loss alone", "eager"], peaks["RNN-T loss alone", "eager"] = rnnt
    return [
        {
            "device": device(),
            **dict(zip("BIJVH", (B, I, J, V, H), strict=True)),
            "model": kind,
            "way": way,
            "step_ms": found,
            "peak_gib": peaks[kind, way],
            "to_plain": found / medians["transducer", way] if kind in TRANSDUCERS else "",
            "to_attention": found / medians["attention", way] if ("attention", way) in medians else "",
        }
        for (kind, way), found in medians.items()
    ]


def draw_batch(B, I, J, V):
    """Pairs in which a quarter of the target tokens are source tokens, one in ten of those unknown."""
    draw = np.random.default_rng(0)
    words = draw.integers(4, V, (B, I - 1), dtype=np.int32)
    words[draw.random(words.shape) < 0.1] *= -1
    targets = draw.integers(4, V, (B, J - 1), dtype=np.int32)
    from_source = np.sort(draw.integers(0, I - 1, targets.shape), 1)
    is_copy = draw.random(targets.shape) < 0.25
    targets[is_copy] = np.take_along_axis(words, from_source, 1)[is_copy]
    return Batch.of(list(np.where(words < 0, UNKNOWN, words)), list(targets), copied=CopiedWords(list(words), V))


def new_step(kind, way, batch, V, H):
    entry = KINDS["transducer" if kind in TRANSDUCERS or kind == "naive_joint" else kind]
    settings = entry.section(hidden_size=H, dropout=0.2, **TRANSDUCERS.get(kind, {})).arguments()
    if not settings.get("copy_words"):
        batch = batch._replace(target=batch.target.masked_fill(batch.target >= V, UNKNOWN), copied=batch.copied[:, :0])
    torch.manual_seed(0)
    assert entry.network is not None
    model = entry.network()(V, V, **settings).to(device())
    optimisation = Optimisation.of(TrainSection(precision="float32"), 1)
    step = Step(model, negative_log_likelihood, optimisation.new_optimiser(model), optimisation.clip)
    if way == "captured":
        captured = CudaGraphStep(step, len(batch.source))
        return lambda: captured(batch)
    there = batch.to(device())

    def take():
        with naive_joint() if kind == "naive_joint" else nothing():
            step(there)

    return take


@contextmanager
def naive_joint():
    factored = transducer.log_token_probabilities
    transducer.log_token_probabilities = naive_log_word_probabilities
    yield
    transducer.log_token_probabilities = factored


@contextmanager
def nothing():
    yield


def naive_log_word_probabilities(source, target, words):
    joint = (source[:, :, None] + target[:, None]).log_softmax(3)
    return joint.gather(3, words[:, None, :, None].expand(-1, source.shape[1], -1, -1))[..., 0]


def peak_gib(step):
    """The most memory of a GPU that steps of this model need, its weights and moments included; none on a CPU."""
    if device() == "cpu":
        step()
        return ""
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(3):  # eager, capture, and replay
        step()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**30


def milliseconds(step):
    count, started = 0, time.perf_counter()
    while count < 3 or time.perf_counter() - started < 0.3:
        step()
        count += 1
        if device() == "cuda" and count % 10 == 0:
            torch.cuda.synchronize()
    if device() == "cuda":
        torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - started) / count


def rnnt_milliseconds(B, I, J, V):
    try:
        from torchaudio.functional import rnnt_loss
    except ImportError:
        return None
    if B * I * J * V >= 2**30:
        return None
    logits = torch.randn(B, I, J + 1, V, device="cuda", requires_grad=True)
    words = torch.randint(1, V, (B, J), device="cuda", dtype=torch.int32)
    lengths = [torch.full((B,), n, device="cuda", dtype=torch.int32) for n in (I, J)]
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()

    def step():
        rnnt_loss(logits, words, *lengths, blank=0).backward()
        logits.grad = None

    step()
    found = statistics.median(milliseconds(step) for _ in range(3))
    return found, (torch.cuda.max_memory_allocated() - before) / 2**30


if __name__ == "__main__":
    from benchmarks.__main__ import table

    print("\n".join(table(measure({int(words) for words in sys.argv[1:]}))))
