"""Time to write a token while the input still arrives, and whether it stays the same on a long input; one core.

Characters: a unidirectional transducer of the demo's size, trained for two epochs on the embedded pairs, reads held-out
words letter by letter. Words: a transducer of 256 units over 10,000 words on each side, with random weights that make
it sure of its words; greedy, it writes one for each that it reads, while the beam finds no two outputs that agree and
has the most work there can be. It reads 5,000 words in one go.
"""

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from antiphon.decode.streams import TransducerStreams
from antiphon.demo import FOLDER, pairs_of
from antiphon.models.transducer import Transducer
from antiphon.recipe.model_sections import TransducerSection
from antiphon.recipe.recipe_file import load_recipe
from antiphon.recipe.sections import SearchSection
from antiphon.runs.build import build_beam
from antiphon.torch_free.stream_policies import POLICIES
from antiphon.torch_free.streams import run_streams
from antiphon.torch_free.vocab import SPECIALS

WORDS, LONG, VOCABULARY = 200, 5_000, 10_000
SURENESS, EAGERNESS = 100.0, 5.0


def measure():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        model = trained(Path(folder) / "run")
        rows = [characters(model, policy) for policy in ("greedy", "beam")]
    return rows + [long_input(policy) for policy in ("greedy", "beam")]


def trained(out):

    from antiphon.api.model import load
    from antiphon.training.fit import train

    changes = ["model.encoder=unidirectional", "train.max_epochs=2"]
    recipe = load_recipe(FOLDER / "pronunciation.toml", changes)
    train(recipe, out, device="cpu", threads=1)
    return load(out, device="cpu", threads=1)


def characters(model, policy):
    times = []
    for pair in pairs_of("test")[:WORDS]:
        started = time.perf_counter()
        (written,) = run_streams(model.streams([()], policy=policy), [list(pair.source)])
        times.append((time.perf_counter() - started) / max(1, len(written.tokens)))
    return {"task": "letters to phonemes", "policy": policy, "ms_per_token_written": 1000 * statistics.median(times)}


def long_input(policy):
    torch.manual_seed(1)
    sizes = TransducerSection(encoder="unidirectional", hidden_size=256)
    model = Transducer(VOCABULARY, VOCABULARY, **sizes.arguments()).eval()
    with torch.no_grad():
        model.source_logits.weight.mul_(SURENESS)
    settings = build_beam(SearchSection(beam=4, max_length_ratio=1.0, commit_margin=3.0))
    streams = POLICIES[policy](TransducerStreams(model), settings, np.zeros((1, 0), np.int64), emit_bias=EAGERNESS)
    source = torch.randint(len(SPECIALS), VOCABULARY, (LONG,)).tolist()
    times, written = [], 0
    for token in source:
        started = time.perf_counter()
        written += len(streams.read([0], [token])[0])
        times.append(1000 * (time.perf_counter() - started))
    first, last = (statistics.median(times[part]) for part in (slice(100, 600), slice(-500, None)))
    row = {"task": f"{VOCABULARY:,} words", "policy": policy, "ms_per_token_read": statistics.median(times)}
    if written:
        row["ms_per_token_written"] = sum(times) / written
    return row | {"ms_at_first": first, "ms_at_last": last, "last_to_first": last / first}
