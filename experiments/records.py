"""Records of what was measured: one JSON object per line, with all that is needed to measure it again."""

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from experiments.table import Job, Row, Table

RECORDS = Path(__file__).parent / "records.jsonl"

Record = dict[str, Any]


def read_records(path: Path = RECORDS) -> dict[str, Record]:
    """The records by key; of several with the same key, the last."""
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return {record["key"]: record for record in map(json.loads, lines)}


def append_record(record: Record, path: Path = RECORDS) -> None:
    """Adds a record at the end of the file, in one write."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())


def digest(path: Path) -> str:
    """The first half of a file's SHA-256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]


def commit() -> str:
    """The commit of the code; ``+`` after it says that tracked files of the package differ from it.

    A copy without a repository is told its commit by the environment variable ``ANTIPHON_COMMIT``.
    """
    if told := os.environ.get("ANTIPHON_COMMIT"):
        return told

    def git(*words: str) -> str:
        folder = Path(__file__).parent
        return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "../src")
    return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")


def machine() -> str:
    """The processor, its number of cores, and the version of PyTorch."""
    import torch

    return f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}"


def format_table(table: Table, records: Iterable[tuple[Job, Record]]) -> str:
    """The table in Markdown: means over seeds, their average over all sets, and the CPU seconds of a training."""
    cells: dict[tuple[str, str], list[float]] = {}
    seconds: dict[str, list[float]] = {}
    for job, record in records:
        if job.row.hidden:
            continue
        value = record["metrics"][table.metric]["value"]
        cells.setdefault((job.row.name, job.set), []).append(100 - value if table.show == "error" else value)
        seconds.setdefault(job.row.name, []).append(record["cpu_seconds"])
    lines = [f"| | {' | '.join(table.sets)} | average | seeds | CPU s |", "|---" * (len(table.sets) + 4) + "|"]
    for row in table.row:
        if not row.hidden:
            lines.append(_line(table, row, cells, seconds.get(row.name, [])))
    lines += [_published(table, system, figures) for system, figures in table.published.items()]
    return "\n".join(lines)


def _line(table: Table, row: Row, cells: Mapping[tuple[str, str], list[float]], seconds: list[float]) -> str:
    means = {name: sum(found) / len(found) for name in table.sets if (found := cells.get((row.name, name)))}
    shown = [f"{means[name]:.1f}" if name in means else "" for name in table.sets]
    average = f"**{sum(means.values()) / len(means):.2f}**" if len(means) == len(table.sets) else ""
    seeds = max((len(cells.get((row.name, name), [])) for name in table.sets), default=0)
    time = f"{sum(seconds) / len(seconds):.0f}" if seconds else ""
    return f"| {row.name} | {' | '.join(shown)} | {average} | {seeds} | {time} |"


def _published(table: Table, system: str, figures: Mapping[str, float]) -> str:
    shown = " | ".join(f"{figures[name]:g}" if name in figures else "" for name in table.sets)
    return f"| {system} | {shown} | {figures.get('average', '')} | | |"
