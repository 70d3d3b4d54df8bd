"""Benchmarks, all or those named; results go to benchmarks/results as JSON, and all that is there into one table.

On a machine with a GPU, files and pictures have names of their own.

python -m benchmarks [NAME ...]
"""

import json
import sys
from importlib import import_module
from pathlib import Path

import torch

RESULTS = Path(__file__).parent / "results"
NAMES = (
    "lattice_memory",
    "training_step",
    "scaling",
    "hard_monotone_peer",
    "decoding",
    "streaming",
    "flat_memory",
    "serving",
    "lite",
)


def main():
    RESULTS.mkdir(exist_ok=True)
    suffix = "_cuda" if torch.cuda.is_available() else ""
    for name in sys.argv[1:] or NAMES:
        rows = import_module(f"benchmarks.{name}").measure()
        (RESULTS / f"{name}{suffix}.json").write_text(json.dumps(rows, indent=2) + "\n")
    names = [f"{name}{suffix}.json" for name in NAMES for suffix in ("", "_cuda")]
    stored = [RESULTS / name for name in names if (RESULTS / name).exists()]
    text = "\n".join(line for path in stored for line in section(path))
    (RESULTS / "table.md").write_text(text)
    print(text)


def section(path):
    rows = json.loads(path.read_text())
    yield from (f"## {path.stem.replace('_', ' ')}", "", *table(rows), "")


def table(rows):
    names = list(dict.fromkeys(name for row in rows for name in row))
    yield "| " + " | ".join(names) + " |"
    yield "|" + "---|" * len(names)
    for row in rows:
        values = (row.get(name, "") for name in names)
        yield "| " + " | ".join(f"{value:.4g}" if isinstance(value, float) else str(value) for value in values) + " |"


if __name__ == "__main__":
    main()
