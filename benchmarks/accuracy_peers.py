"""Dev accuracy of inflection against peers (yoyodyne), each with a time limit on one core; ours with no settings.

python -m benchmarks.accuracy_peers TRAIN.tsv DEV.tsv [--minutes 8] [--model NAME ...] [--python PYTHON]

The peer lives in a virtual environment of its own, made on first use, unless ``--python`` names one that has it. Its
sizes are those that its documentation starts from, with 128 or 256 units, batches of 32 and Adam at 0.001; its best
epoch on dev is reported, as is ours.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.hard_monotone_peer import PEER, install_peer

CONFIG = """
seed_everything: 1
trainer:
  max_time: 00:00:{minutes:02d}:00
  max_epochs: 10000
  accelerator: cpu
  enable_progress_bar: false
  logger:
    class_path: lightning.pytorch.loggers.CSVLogger
    init_args: {{save_dir: {folder}}}
model:
  class_path: yoyodyne.models.{model}
  init_args: {{{settings}}}
data:
  {{train: {train}, val: {dev}, model_dir: {folder}, batch_size: 32, features_col: {features}, features_sep: ";"}}
"""
LSTM_ENCODERS = """
    embedding_size: 128, decoder_hidden_size: 256, decoder_dropout: 0.3,
    source_encoder:
      {class_path: yoyodyne.models.modules.LSTMEncoder, init_args: {hidden_size: 256, dropout: 0.3}},
    features_encoder: true
"""
TRANSFORMER_ENCODERS = """
    embedding_size: 128, decoder_hidden_size: 512, decoder_layers: 2, decoder_dropout: 0.3,
    source_encoder:
      {class_path: yoyodyne.models.modules.TransformerEncoder,
       init_args: {hidden_size: 512, layers: 2, dropout: 0.3}},
    features_encoder: true
"""
MODELS = {
    "HardAttentionLSTMModel": "enforce_monotonic: true," + LSTM_ENCODERS,
    "PointerGeneratorLSTMModel": LSTM_ENCODERS,
    "HardAttentionTransformerModel": "enforce_monotonic: true," + TRANSFORMER_ENCODERS,
    "TransformerModel": TRANSFORMER_ENCODERS,
}


def main():
    arguments = parse_arguments()
    if arguments.python is None:
        install_peer()
    rows = [("ours", *ours(arguments))] if arguments.ours else []
    rows += [(name, *peer(name, arguments)) for name in arguments.model]
    for name, accuracy, minutes in rows:
        print(f"{name:32} {accuracy:5.1f} % after {minutes:4.1f} minutes", flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("train", type=absolute)
    parser.add_argument("dev", type=absolute)
    parser.add_argument("--minutes", type=int, default=8)
    parser.add_argument("--model", nargs="*", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--python", type=Path, help="a Python that has yoyodyne")
    parser.add_argument("--ours", action=argparse.BooleanOptionalAction, default=True)
    return parser.parse_args()


def absolute(path):
    """The path as it is from any folder: commands run in folders of their own."""
    return Path(path).absolute()


def ours(arguments):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        data = ["--set", f"data.train={arguments.train}", "--set", f"data.dev={arguments.dev}"]
        command = [sys.executable, "-m", "antiphon", "train", "inflection", *data, "--out", out, "--threads", "1"]
        seconds = run(command, folder)
        metrics = json.loads((out / "metrics.json").read_text())
        return metrics.get("dev_accuracy_with_rules", metrics["dev_accuracy"]), seconds / 60


def peer(model, arguments):
    with tempfile.TemporaryDirectory() as folder:
        has_features = "\t" in arguments.train.read_text(encoding="utf-8").split("\n", 1)[0].split("\t", 1)[1]
        config = Path(folder) / "peer.yaml"
        config.write_text(
            CONFIG.format(
                minutes=arguments.minutes,
                folder=folder,
                model=model,
                settings=MODELS[model],
                train=arguments.train,
                dev=arguments.dev,
                features=3 if has_features else 0,
            )
        )
        python = arguments.python or PEER / "bin" / "python"
        seconds = run([python, "-c", "from yoyodyne.cli.main import main; main()", "fit", "--config", config], folder)
        logged = next(Path(folder).rglob("metrics.csv"))
        values = [row["val_accuracy"] for row in csv.DictReader(logged.open()) if row.get("val_accuracy")]
        return 100 * max(map(float, values)), seconds / 60


def run(command, folder):
    """Seconds that a command took on one thread of a CPU."""
    started = time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
