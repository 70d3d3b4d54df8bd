"""Records of what was measured: one JSON object per line, with all that is needed to measure it again."""

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from experiments.table import Job, Table

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

    def has(self, metric: str) -> bool:
        """Whether there is a value; a group of items may be empty."""
        metrics: dict[str, Any] = self.record["metrics"]
        return metric in metrics


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
    return bool(job.key({role: file["sha256"] for role, file in files.items()}) == record["key"])


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
    """The processor, its number of cores, the GPU if there is one, and the version of PyTorch."""
    import torch

    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{platform.machine()}, {os.cpu_count()} cores{gpu}, torch {torch.__version__}"
