"""Trains and scores the runs of a table with the commands that a user would type."""

import json
import os
import resource
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from antiphon.exceptions import AntiphonError
from experiments.made_data import make
from experiments.prepare import cut
from experiments.question_folds import fold
from experiments.records import Record, commit, digest, machine
from experiments.table import Job


@dataclass(frozen=True)
class Runner:
    """Runs jobs below a folder of runs, on files below a folder of data."""

    data: Path
    runs: Path

    def digests(self, job: Job) -> dict[str, str]:
        """The digest of every file of a job."""
        return {role: digest(self._file(name)) for role, name in job.files.items()}

    def _file(self, name: str) -> Path:
        """A file of a table: made or cut by script, or below the data folder."""
        if name.startswith("cut/"):
            return cut(name, self.data, self.runs / "cut")
        if name.startswith("folds/"):
            return fold(name, self.data, self.runs / "folds")
        path = make(name, self.runs / "made") if name.startswith("made/") else self.data / name
        if not path.is_file():
            raise AntiphonError(f"{path}: no such file; --data names the folder that has {name}")
        return path

    def run(self, job: Job) -> Record:
        """Trains or combines a run, and returns the record of its scores."""
        digests = self.digests(job)
        started, key = time.monotonic(), job.key(digests)
        out = self.runs / key
        commands = self._combine(job, out) if job.row.combine else [self._train(job, out)]
        used = sum(_call(command, log=self.runs / f"{key}.log") for command in commands)
        evaluations = self._evaluations(job, out)
        scores = {name: json.loads(_output(words))["metrics"] for name, words in evaluations.items()}
        recipe = _resolved_recipe(out)
        return {
            "key": key,
            "row": job.row.name,
            "set": job.set,
            "seed": job.seed,
            "metrics": {f"{name} {metric}".strip(): of[metric] for name, of in scores.items() for metric in of},
            "cpu_seconds": round(used, 1),
            "minutes": round((time.monotonic() - started) / 60, 2),
            "commands": [self._portable(command) for command in [*commands, *evaluations.values()]],
            "recipe": recipe,
            "files": {role: {"name": name, "sha256": digests[role]} for role, name in job.files.items()},
            "commit": commit(),
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
            "machine": machine(),
        }

    def _train(self, job: Job, out: Path) -> list[str]:
        assert job.row.recipe is not None
        files = {f"data.{role}": str(self._file(name)) for role, name in job.files.items() if role in ("train", "dev")}
        given = self._set({**files, **job.settings, "train.seed": job.seed})
        resume = ["--resume"] if (out / "manifest.json").exists() else []
        return ["train", job.row.recipe, *given, "--out", str(out), *resume]

    def _set(self, settings: Mapping[str, Any]) -> list[str]:
        return [word for key, value in settings.items() for word in ("--set", f"{key}={self._value(value)}")]

    def _evaluations(self, job: Job, out: Path) -> dict[str, list[str]]:
        """The commands that score a run, by question set, or one without a name."""
        evaluate = ["evaluate", str(out), str(self._file(job.files["score"])), *job.table.predict]
        sets = job.table.questions or {"": ()}
        return {name: [*evaluate, *map(self._value, words), "--json"] for name, words in sets.items()}

    def _value(self, value: Any) -> str:
        """A setting as text; ``data:NAME`` is a file."""
        if isinstance(value, str):
            return str(self._file(value.removeprefix("data:"))) if value.startswith("data:") else value
        return json.dumps(value)

    def _combine(self, job: Job, out: Path) -> list[list[str]]:
        runs = {role: str(self.runs / part.key(self.digests(part))) for role, part in job.parts.items()}
        parts = [word for role, run in runs.items() for word in (f"--{role}", run)]
        tune = ["tune", str(out), str(self._file(job.files["dev"])), *job.table.tune]
        return [["combine", *parts, *self._set(job.settings), "--out", str(out), "--force"], tune]

    def _portable(self, command: list[str]) -> str:
        """A command as one would type it, without the folders of this machine."""
        text = shlex.join(["antiphon", *command])
        return text.replace(str(self.runs), "RUNS").replace(str(self.data), "DATA")

    def run_all(self, jobs: list[Job], at_once: int) -> Iterator[tuple[Job, Record]]:
        """The record of each job as it is done; noisy channels after what they are made of."""
        for combined in (False, True):
            with ThreadPoolExecutor(at_once) as pool:
                found = {pool.submit(self.run, job): job for job in jobs if bool(job.row.combine) == combined}
                try:
                    for done in as_completed(found):
                        yield found[done], done.result()
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise


def _resolved_recipe(run: Path) -> dict[str, Any]:
    """The settings that a run was trained with, without its files."""
    recipe = tomllib.loads((run / "recipe.toml").read_text(encoding="utf-8"))
    for name in ("train", "dev", "test", "unpaired", "vectors", "vocab_from", "cache"):
        recipe.get("data", {}).pop(name, None)
    return recipe


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def _call(command: list[str], log: Path) -> float:
    """Runs a command of antiphon with one thread; returns its CPU seconds. What it prints goes to a log."""
    words = [sys.executable, "-m", "antiphon", *command]
    with log.open("a", encoding="utf-8") as file:
        process = subprocess.Popen(words, stdout=file, stderr=file, stdin=subprocess.DEVNULL, env=_environment())
        _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise AntiphonError(f"antiphon {shlex.join(command)} failed: {_last_line(log)} (all of it: {log})")
    return _cpu_seconds(usage)


def _cpu_seconds(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "no output")


def _output(command: list[str]) -> str:
    words = [sys.executable, "-m", "antiphon", *command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=_environment())
    if done.returncode:
        raise AntiphonError(f"antiphon {shlex.join(command)} failed: {done.stderr.strip()}")
    return done.stdout
