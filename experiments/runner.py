"""Trains and scores the runs of a table with the commands that a user would type."""

import json
import os
import resource
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from antiphon.exceptions import AntiphonError
from antiphon.torch_free.readers import Pair, read_pairs
from experiments.item_scores import mark_right, pack, seen_accuracies
from experiments.made_data import make
from experiments.prepare import cut
from experiments.question_folds import fold
from experiments.records import Record, commit, digest, machine
from experiments.table import FROM_FILE, Job

_ANY_FEATURES = ("--allow-unknown-features",)


@dataclass(frozen=True)
class Runner:
    """Runs jobs below a folder of runs, on files below a folder of data."""

    data: Path
    runs: Path

    def digests(self, job: Job) -> dict[str, str]:
        """The digest of every file of a job."""
        return {role: digest(self.file(name)) for role, name in job.files.items()}

    def file(self, name: str) -> Path:
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
        commands, evaluations = self._commands(job, out), self._evaluations(job, out)
        changes = [f"{name}={value!r}" for name, value in job.row.constants.items()]
        used = sum(_call(command, changes, log=self.runs / f"{key}.log") for command in commands)
        return {
            "key": key,
            "row": job.row.name,
            "set": job.set,
            "seed": job.seed,
            **(self._item_scores(job, out) if job.table.by_seen else self._scores(job, out, evaluations)),
            "cpu_seconds": round(used, 1),
            "minutes": round((time.monotonic() - started) / 60, 2),
            "commands": [
                *(self._portable(command, changes) for command in commands),
                *map(self._portable, evaluations.values()),
            ],
            "recipe": {} if job.row.predictions else _resolved_recipe(out),
            "files": {role: {"name": name, "sha256": digests[role]} for role, name in job.files.items()},
            "commit": commit(),
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
            "machine": machine(),
        }

    def _commands(self, job: Job, out: Path) -> list[list[str]]:
        """The commands that make a run; published predictions have none."""
        if job.row.predictions:
            return []
        return self._combine(job, out) if job.row.combine else [self._train(job, out)]

    def _train(self, job: Job, out: Path) -> list[str]:
        assert job.row.recipe is not None
        files = {f"data.{role}": str(self.file(name)) for role, name in job.files.items() if role in ("train", "dev")}
        from_file = job.row.recipe == FROM_FILE
        given = self._set({**({} if from_file else files), **job.settings, "train.seed": job.seed})
        seeds = ["--seeds", str(job.row.members)] if job.row.members else []
        resume = ["--resume"] if any(self.runs.glob(f"{out.name}*/manifest.json")) else []
        return [
            "train",
            files["data.train"] if from_file else job.row.recipe,
            *given,
            *seeds,
            "--out",
            str(out),
            *resume,
        ]

    def _set(self, settings: Mapping[str, Any]) -> list[str]:
        return [word for key, value in settings.items() for word in ("--set", f"{key}={self._value(value)}")]

    def _evaluations(self, job: Job, out: Path) -> dict[str, list[str]]:
        """The commands that score a run, by question set, or one without a name."""
        if job.row.predictions:
            return {}
        if job.table.by_seen:
            return {"": ["predict", str(out), "-", *_ANY_FEATURES]}
        options = () if job.row.hidden else job.table.predict
        evaluate = ["evaluate", str(out), str(self.file(job.files["score"])), *options]
        sets = job.table.questions or {"": ()}
        return {name: [*evaluate, *map(self._value, words), "--json"] for name, words in sets.items()}

    def _scores(self, job: Job, out: Path, evaluations: Mapping[str, list[str]]) -> Record:
        """The metrics that the commands print, and the number of outputs that do not end."""
        scores = {name: json.loads(_output(words))["metrics"] for name, words in evaluations.items()}
        if job.table.counts_runaways:
            scores[""] |= {
                "runaways": self._runaways(job, out),
                "greedy runaways": self._runaways(job, out, "--beam=1"),
            }
        return {"metrics": {f"{name} {metric}".strip(): of[metric] for name, of in scores.items() for metric in of}}

    def _item_scores(self, job: Job, out: Path) -> Record:
        """Accuracies by what training has seen, and which items are right."""
        items = self._pairs(job, "score")
        right = mark_right(self._outputs(job, out, *_ANY_FEATURES), items)
        return {"metrics": seen_accuracies(self._pairs(job, "train"), items, right), "right": pack(right)}

    def _runaways(self, job: Job, out: Path, *options: str) -> dict[str, Any]:
        """The number of outputs that go on for more than twice the length of their reference and ten characters."""
        outputs, pairs = self._outputs(job, out, *options), self._pairs(job, "score")
        endless = sum(len(text) > 2 * len(pair.target) + 10 for text, pair in zip(outputs, pairs, strict=True))
        return {"value": endless, "signature": " ".join(["longer than 2 x reference + 10 characters", *options])}

    def _outputs(self, job: Job, out: Path, *options: str) -> list[str]:
        """What a run predicts for the scored file, or what was published."""
        pairs = self._pairs(job, "score")
        if not job.row.predictions:
            sources = "".join("\t".join([pair.source, ";".join(pair.features)]).rstrip() + "\n" for pair in pairs)
            return _output(["predict", str(out), "-", *options], sources).splitlines()
        published = self._pairs(job, "predictions")
        if [pair.source.strip() for pair in published] != [pair.source.strip() for pair in pairs]:
            raise AntiphonError(f"{job.files['predictions']}: expected the inputs of {job.files['score']}, in order")
        return [pair.target for pair in published]

    def _pairs(self, job: Job, role: str) -> list[Pair]:
        return list(read_pairs(self.file(job.files[role]), columns=job.table.file_columns))

    def _value(self, value: Any) -> str:
        """A setting as text; ``data:NAME`` is a file."""
        if isinstance(value, str):
            return str(self.file(value.removeprefix("data:"))) if value.startswith("data:") else value
        return json.dumps(value)

    def _combine(self, job: Job, out: Path) -> list[list[str]]:
        runs = {role: str(self.runs / part.key(self.digests(part))) for role, part in job.parts.items()}
        parts = [word for role, run in runs.items() for word in (f"--{role}", run)]
        tune = ["tune", str(out), str(self.file(job.files["dev"])), *job.table.tune]
        return [["combine", *parts, *self._set(job.settings), "--out", str(out), "--force"], tune]

    def _portable(self, command: list[str], changes: Sequence[str] = ()) -> str:
        """A command as one would type it, without the folders of this machine."""
        program = ["python", "-m", "experiments.changed_constants", *changes] if changes else ["antiphon"]
        text = shlex.join([*program, *command])
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


def _call(command: list[str], changes: Sequence[str], log: Path) -> float:
    """Runs a command of antiphon with one thread; returns its CPU seconds. What it prints goes to a log.

    ``changes`` are constants with other values: ``changed_constants.py``.
    """
    words = [sys.executable, "-m", "experiments.changed_constants" if changes else "antiphon", *changes, *command]
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


def _output(command: list[str], given: str = "") -> str:
    words = [sys.executable, "-m", "antiphon", *command]
    done = subprocess.run(words, input=given, capture_output=True, text=True, check=False, env=_environment())
    if done.returncode:
        raise AntiphonError(f"antiphon {shlex.join(command)} failed: {done.stderr.strip()}")
    return done.stdout
