"""Peak memory and time of the loss and its gradient: factored softmax against the naive joint.

Each way runs in a process of its own, whose peak resident size is read from the system; the peak of a process that
only makes the inputs is taken off. The naive joint allocates B x I x J x V logits.
"""

import json
import subprocess
import sys
import time

SIZES = {"B": 32, "I": 50, "J": 25, "V": 20_000}


def run_one(way):
    import resource

    import torch

    from antiphon.lattice import log_marginal
    from antiphon.nn.factored_softmax import log_token_probabilities

    torch.manual_seed(0)
    torch.set_num_threads(1)
    B, I, J, V = SIZES.values()
    source = torch.randn(B, I, V, requires_grad=True)
    target = torch.randn(B, J, V, requires_grad=True)
    words = torch.randint(V, (B, J))
    lengths = torch.full((B,), I), torch.full((B,), J)
    log_read = torch.full((B, I, J), -0.7)
    started = time.perf_counter()
    loss = 0.0
    if way == "factored":
        log_word = log_token_probabilities(source, target, words)
        loss = -log_marginal(log_word - 0.7, log_read, *lengths).mean()
        loss.backward()
    elif way == "naive":
        joint = (source[:, :, None] + target[:, None]).log_softmax(3)
        log_word = joint.gather(3, words[:, None, :, None].expand(-1, I, -1, -1))[..., 0]
        loss = -log_marginal(log_word - 0.7, log_read, *lengths).mean()
        loss.backward()
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"way": way, "loss": float(loss), "seconds": seconds, "peak_gib": peak}))


def measure():
    found = {}
    for way in ("inputs", "naive", "factored"):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.lattice_memory", way], capture_output=True, text=True, check=True
        )
        found[way] = json.loads(done.stdout)
    base = found["inputs"]["peak_gib"]
    naive, factored = (found[way]["peak_gib"] - base for way in ("naive", "factored"))
    return [
        {
            **SIZES,
            "naive_gib": naive,
            "factored_gib": factored,
            "memory_ratio": factored / naive,
            "naive_s": found["naive"]["seconds"],
            "factored_s": found["factored"]["seconds"],
            "time_ratio": found["factored"]["seconds"] / found["naive"]["seconds"],
            "loss_difference": abs(found["naive"]["loss"] - found["factored"]["loss"]),
        }
    ]


if __name__ == "__main__":
    run_one(sys.argv[1])
