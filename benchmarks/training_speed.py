"""Training examples per second of the transducer on one core, at character-task sizes."""

import time

import numpy as np
import torch

from antiphon.data.batch import Batch
from antiphon.models.transducer import Transducer

STEPS = 30


def measure():
    torch.set_num_threads(1)
    return [
        measure_one(batch_size, transition) for batch_size in (16, 32, 64) for transition in ("neural", "geometric")
    ]


def measure_one(batch_size, transition, I=12, J=12, V=40, H=128):
    draw = np.random.default_rng(0)
    batch = Batch.of(
        [draw.integers(4, V, I - 1) for _ in range(batch_size)], [draw.integers(4, V, J - 1) for _ in range(batch_size)]
    )
    model = Transducer(V, V, hidden_size=H, embedding_size=H, dropout=0.5, transition=transition)
    adam = torch.optim.Adam(model.parameters(), fused=True)

    def step():
        loss = -model.log_prob(batch).mean()
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        adam.step()

    for _ in range(5):
        step()
    started = time.perf_counter()
    for _ in range(STEPS):
        step()
    seconds = (time.perf_counter() - started) / STEPS
    return {
        "transition": transition,
        "B": batch_size,
        "I": I,
        "J": J,
        "V": V,
        "H": H,
        "step_ms": 1000 * seconds,
        "examples_per_second": batch_size / seconds,
    }
