"""Training pairs per second against a peer's exact hard-monotone LSTM (yoyodyne), both on one core.

The peer lives in a virtual environment of its own, made on first use. Both train on the same pairs of fourteen
letters or so, with 128 units, one layer and batches of 32, in turn, several times; the medians are compared.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from antiphon.demo import FOLDER
from antiphon.torch_free.readers import read_pairs

ROOT = Path(__file__).parent.parent
PEER = ROOT / ".venv-peer"
PAIRS, ROUNDS = 1600, 3

PEER_CONFIG = """
seed_everything: 1
trainer: {{max_epochs: {epochs}, accelerator: cpu, logger: false, enable_progress_bar: false}}
model:
  class_path: yoyodyne.models.HardAttentionLSTMModel
  init_args:
    enforce_monotonic: true
    embedding_size: 128
    decoder_hidden_size: 128
    source_encoder:
      class_path: yoyodyne.models.modules.LSTMEncoder
      init_args: {{hidden_size: 128, layers: 1}}
data: {{train: {folder}/train.tsv, val: {folder}/dev.tsv, model_dir: {folder}/peer, batch_size: 32}}
"""


def measure():
    install_peer()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pairs(folder)
        rounds = [(ours(folder), peers(folder)) for _ in range(ROUNDS)]
    our_speed, peer_speed = (statistics.median(speeds) for speeds in zip(*rounds, strict=True))
    return [
        {
            "pairs": PAIRS,
            "batch": 32,
            "antiphon_pairs_per_second": our_speed,
            "peer_pairs_per_second": peer_speed,
            "ratio": our_speed / peer_speed,
        }
    ]


def install_peer():
    if (PEER / "bin" / "yoyodyne").exists():
        return
    subprocess.run([sys.executable, "-m", "venv", PEER], check=True)
    pip = [PEER / "bin" / "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt"]
    subprocess.run([*pip, "torch"], check=True)
    subprocess.run([*pip, "yoyodyne==0.5.27"], check=True)
    # Its torchvision has no build for this torch, and nothing here needs it.
    subprocess.run([PEER / "bin" / "pip", "uninstall", "--quiet", "--yes", "torchvision"], check=True)


def write_pairs(folder):
    """Pairs like compounds and their plurals: two dictionary words, and the same with an ending."""
    words = [pair.source for pair in read_pairs(FOLDER / "cmudict.train.tsv.gz")][: 2 * PAIRS]
    rows = [f"{first}{second}\t{first}{second}en\n" for first, second in zip(words[::2], words[1::2], strict=True)]
    (folder / "train.tsv").write_text("".join(rows))
    (folder / "dev.tsv").write_text("".join(rows[:32]))


def ours(folder):
    settings = [
        f"data.train={folder}/train.tsv",
        f"data.dev={folder}/dev.tsv",
        "train.batch_size=32",
        "model.layers=1",
        "train.max_epochs=2",
        "train.dev_metric=perplexity",
    ]
    command = [
        sys.executable,
        "-m",
        "antiphon",
        "train",
        "inflection",
        "--out",
        folder / "ours",
        "--force",
    ]
    command += [part for setting in settings for part in ("--set", setting)]
    subprocess.run([*command, "--threads", "1"], check=True, capture_output=True, cwd=ROOT)
    return json.loads((folder / "ours" / "metrics.json").read_text())["pairs_per_second"]


def peers(folder):
    """The time of one epoch more, so that starting up does not count."""
    one, two = (peer_seconds(folder, epochs) for epochs in (1, 2))
    return PAIRS / (two - one)


def peer_seconds(folder, epochs):
    config = folder / "peer.yaml"
    config.write_text(PEER_CONFIG.format(epochs=epochs, folder=folder))
    started = time.perf_counter()
    subprocess.run(
        [PEER / "bin" / "yoyodyne", "fit", "--config", config],
        check=True,
        capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=folder,
    )
    return time.perf_counter() - started
