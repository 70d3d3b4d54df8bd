"""Records of what was measured: one JSON object per line, with all that is needed to measure it again."""

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from experiments.table import Column, Job, Row, Table

RECORDS = Path(__file__).parent / "records.jsonl"

Record = dict[str, Any]


class Found(NamedTuple):
    """A job and its record; not current if the recipe, or the data, have changed since it was measured."""

    job: Job
    record: Record
    is_current: bool = True

    @property
    def value(self) -> float:
        """The value of the table's first metric."""
        return self.of(self.job.table.metric[0])

    def of(self, metric: str) -> float:
        """The value of a metric."""
        return float(self.record["metrics"][metric]["value"])


def find_records(table: Table, name: str, records: Iterable[Record]) -> Iterator[Found]:
    """The record of each job of a table, whatever the data are that are here now.

    A run that another table has measured counts as well. Where the recipe has changed, it is the last of its row.
    """
    by_set: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        by_set.setdefault((record["set"], record["seed"]), []).append(record)
    for job in table.jobs():
        of_set = by_set.get((job.set, job.seed), [])
        same = [record for record in of_set if _is_same(job, record)]
        changed = [record for record in of_set if (record["table"], record["row"]) == (name, job.row.name)]
        if same or changed:
            yield Found(job, (same or changed)[-1], bool(same))


def _is_same(job: Job, record: Record) -> bool:
    """Whether a job would repeat what a record is of: same files, recipe and settings."""
    files: dict[str, dict[str, str]] = record["files"]
    if {role: file["name"] for role, file in files.items()} != job.files:
        return False
    return job.key({role: file["sha256"] for role, file in files.items()}) == record["key"]


def all_records(path: Path = RECORDS) -> list[Record]:
    """All records in their order; a run that several tables or sets share has one for each."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def read_records(path: Path = RECORDS) -> dict[str, Record]:
    """The records by key; of several with the same key, the last."""
    return {record["key"]: record for record in all_records(path)}


def record_for(job: Job, name: str, record: Record) -> Record:
    """The record of a run as that of another job which would repeat it: files of the same contents, other names."""
    files = {role: {**record["files"][role], "name": file} for role, file in job.files.items()}
    return record | {"table": name, "row": job.row.name, "set": job.set, "files": files}


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

    What the thesis prints stands beside the column. A figure with ``*`` is of a recipe that has changed since.
    """
    by_row = measured_rows(table, found)
    columns = table.columns_of(table.row[0])
    head = [
        "system",
        *(head for column in columns for head in _heads(table, column)),
        *_average_head(table),
        "seeds",
        "CPU s",
        "commit",
    ]
    lines = [_cells(table, table.find(name), found_of_row) for name, found_of_row in by_row.items()]
    lines += [_published(table, system, figures) for system, figures in table.published.items()]
    shown = [f"| {' | '.join(cells)} |" for cells in [head, *lines]]
    return "\n".join([shown[0], "|---" * len(head) + "|", *shown[1:]])


def measured_rows(table: Table, found: Iterable[Found]) -> dict[str, list[Found]]:
    """What was found of each row that is shown and has a figure."""
    by_row: dict[str, list[Found]] = {row.name: [] for row in table.row if not row.hidden}
    for each in found:
        if not each.job.row.hidden:
            by_row[each.job.row.name].append(each)
    return {
        name: of_row
        for name, of_row in by_row.items()
        if any(_column_mean(table, column, of_row) is not None for column in table.columns_of(table.find(name)))
    }


def _heads(table: Table, column: Column) -> list[str]:
    return [column.name, "thesis"] if table.has_thesis(column.name) else [column.name]


def _average_head(table: Table) -> list[str]:
    return ["average"] if table.has_average else []


def _cells(table: Table, row: Row, found: list[Found]) -> list[str]:
    """The cells of a row; a column is empty until all its sets are measured."""
    mark = "" if all(each.is_current for each in found) else "*"
    cells, columns = [row.name], table.columns_of(row)
    means = [_column_mean(table, column, found) for column in columns]
    for column, mean in zip(columns, means, strict=True):
        cells.append("" if mean is None else f"{mean:.{table.digits}f}{mark}")
        cells += [f"{row.thesis[column.name]:g}" if column.name in row.thesis else ""] * table.has_thesis(column.name)
    known = [mean for mean in means if mean is not None]
    if table.has_average:
        cells.append(f"**{_mean(known):.2f}**{mark}" if len(known) == len(means) else "")
    seeds = len({each.job.seed for each in found})
    commits = sorted({each.record["commit"][:8] for each in found})
    return [*cells, str(seeds), f"{_mean([each.record['cpu_seconds'] for each in found]):.0f}", ", ".join(commits)]


def _column_mean(table: Table, column: Column, found: list[Found]) -> float | None:
    """The mean over the sets of a column of the means over seeds."""
    by_set = [[table.shown(each.of(column.metric)) for each in found if each.job.set == name] for name in column.sets]
    return _mean([_mean(values) for values in by_set]) if by_set and all(by_set) else None


def _mean(values: Collection[float]) -> float:
    return sum(values) / len(values)


def _published(table: Table, system: str, figures: Mapping[str, float]) -> list[str]:
    cells = [system]
    for column in table.columns_of(table.row[0]):
        cells += [f"{figures[column.name]:g}" if column.name in figures else ""]
        cells += [""] * table.has_thesis(column.name)
    return [*cells, *([f"{figures.get('average', '')}"] * table.has_average), "", "", ""]
