"""Records of what was measured: one JSON object per line, with all that is needed to measure it again."""

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from experiments.table import Job, Row, Table

RECORDS = Path(__file__).parent / "records.jsonl"

Record = dict[str, Any]


class Found(NamedTuple):
    """A job and its record; not current if the recipe, or the data, have changed since it was measured."""

    job: Job
    record: Record
    is_current: bool = True

    @property
    def value(self) -> float:
        """The value of the table's metric."""
        return float(self.record["metrics"][self.job.table.metric]["value"])


def find_records(table: Table, name: str, records: Iterable[Record]) -> Iterator[Found]:
    """The last record of each job of a table, whatever the data are that are here now."""
    last = {(each["row"], each["set"], each["seed"]): each for each in records if each["table"] == name}
    for job in table.jobs():
        if record := last.get((job.row.name, job.set, job.seed)):
            digests = {role: file["sha256"] for role, file in record["files"].items()}
            yield Found(job, record, job.key(digests) == record["key"])


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


def format_table(table: Table, found: Iterable[Found]) -> str:
    """The table in Markdown: means over seeds, their average over all sets, and the CPU seconds of a training.

    A figure with ``*`` is of a recipe that has changed since.
    """
    cells: dict[tuple[str, str], list[Found]] = {}
    for each in found:
        if each.job.row.hidden:
            continue
        cells.setdefault((each.job.row.name, each.job.set), []).append(each)
    lines = [f"| | {' | '.join(table.sets)} | average | seeds | CPU s |", "|---" * (len(table.sets) + 4) + "|"]
    measured = {name for name, _ in cells}
    lines += [_line(table, row, cells) for row in table.row if not row.hidden and row.name in measured]
    lines += [_published(table, system, figures) for system, figures in table.published.items()]
    return "\n".join(lines)


def _line(table: Table, row: Row, cells: Mapping[tuple[str, str], list[Found]]) -> str:
    columns = {name: found for name in table.sets if (found := cells.get((row.name, name)))}
    means = {name: _mean([table.shown(each.value) for each in found]) for name, found in columns.items()}
    all_found = [each for found in columns.values() for each in found]
    mark = "" if all(each.is_current for each in all_found) else "*"
    shown = [f"{means[name]:.1f}{mark}" if name in means else "" for name in table.sets]
    average = f"**{_mean(means.values()):.2f}**{mark}" if len(means) == len(table.sets) else ""
    seeds = max(map(len, columns.values()), default=0)
    time = f"{_mean([each.record['cpu_seconds'] for each in all_found]):.0f}" if all_found else ""
    return f"| {row.name} | {' | '.join(shown)} | {average} | {seeds} | {time} |"


def _mean(values: Collection[float]) -> float:
    return sum(values) / len(values)


def _published(table: Table, system: str, figures: Mapping[str, float]) -> str:
    shown = " | ".join(f"{figures[name]:g}" if name in figures else "" for name in table.sets)
    return f"| {system} | {shown} | {figures.get('average', '')} | | |"
