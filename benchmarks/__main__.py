"""Every benchmark in turn; results go to benchmarks/results as JSON and one Markdown table."""

import json
from pathlib import Path

from benchmarks import hard_monotone_peer, lattice_memory, noisy_channel_decoding, streaming, training_speed

RESULTS = Path(__file__).parent / "results"


def main():
    RESULTS.mkdir(exist_ok=True)
    lines = []
    for benchmark in (lattice_memory, training_speed, hard_monotone_peer, noisy_channel_decoding, streaming):
        name = benchmark.__name__.rpartition(".")[2]
        rows = benchmark.measure()
        (RESULTS / f"{name}.json").write_text(json.dumps(rows, indent=2) + "\n")
        lines += [f"## {name.replace('_', ' ')}", "", *table(rows), ""]
    text = "\n".join(lines)
    (RESULTS / "table.md").write_text(text)
    print(text)


def table(rows):
    names = list(dict.fromkeys(name for row in rows for name in row))
    yield "| " + " | ".join(names) + " |"
    yield "|" + "---|" * len(names)
    for row in rows:
        values = (row.get(name, "") for name in names)
        yield "| " + " | ".join(f"{value:.4g}" if isinstance(value, float) else str(value) for value in values) + " |"


if __name__ == "__main__":
    main()
