"""Time of a loss and its gradient beside the RNN-T losses of torchaudio and, where it is installed, fast_rnnt.

All three sum over the same alignments of the same additive logits, in one process, in turn. torchaudio is given the
joint over cells and classes, which is part of its time; fast_rnnt's simple loss and ours never make it.

    python -m venv .venv-rnnt && .venv-rnnt/bin/pip install -e .[torch] torch==2.11.0 torchaudio==2.11.0
    .venv-rnnt/bin/python -m benchmarks.rnnt_loss
"""

import statistics
import time
from importlib.util import find_spec

import torch

from antiphon import transducer_loss

SIZES = ((8, 50, 20, 64), (8, 50, 20, 1000))
ROUNDS = 5


def measure():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return [compare(*sizes) for sizes in SIZES]


def compare(B, I, J, V):
    source, target = torch.randn(B, I, V), torch.randn(B, J + 1, V)
    targets = torch.randint(1, V, (B, J))
    lengths = torch.full((B,), I), torch.full((B,), J)
    ways = {"antiphon": lambda *logits: ours(*logits, targets, *lengths)}
    if find_spec("torchaudio"):
        ways["torchaudio"] = lambda *logits: torchaudios(*logits, targets, *lengths)
    if find_spec("fast_rnnt"):
        ways["fast_rnnt"] = lambda *logits: fast_rnnts(*logits, targets)
    rounds = [{name: seconds(way, source, target) for name, way in ways.items()} for _ in range(ROUNDS + 1)][1:]
    medians = {name: statistics.median(each[name] for each in rounds) for name in ways}
    found = {"B": B, "I": I, "J": J, "V": V, **{f"{name}_ms": 1000 * value for name, value in medians.items()}}
    return found | {f"{name}_ratio": value / medians["antiphon"] for name, value in medians.items()}


def seconds(way, source, target):
    leaves = source.clone().requires_grad_(), target.clone().requires_grad_()
    started = time.perf_counter()
    way(*leaves).backward()
    return time.perf_counter() - started


def ours(source, target, targets, source_lengths, target_lengths):
    return transducer_loss(source, target[:, :-1], source[:, :, :1], targets, source_lengths, target_lengths)


def torchaudios(source, target, targets, source_lengths, target_lengths):
    from torchaudio.functional import rnnt_loss

    joint = source[:, :, None] + target[:, None]
    return rnnt_loss(joint, targets.int(), source_lengths.int(), target_lengths.int(), blank=0)


def fast_rnnts(source, target, targets):
    from fast_rnnt import rnnt_loss_simple

    return rnnt_loss_simple(lm=target, am=source, symbols=targets, termination_symbol=0)


if __name__ == "__main__":
    for row in measure():
        print(", ".join(f"{name} {value:.3g}" for name, value in row.items()))
