"""Grid search: a recipe trained once for every combination of values, in parallel processes.

Every combination has a recipe and a run folder of its own, so a search that was stopped goes on where it was, and one
that is widened trains only what is new. Nothing is measured on test data: the dev metric decides.
"""

import csv
import re
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from threading import Lock

from antiphon.child_processes import Terminated, lifeline
from antiphon.exceptions import RecipeError, RunError
from antiphon.metrics import LOWER_IS_BETTER
from antiphon.recipe.recipe_file import load_recipe, save_recipe
from antiphon.recipe.schema import Recipe
from antiphon.runs.run_folder import RunFolder
from antiphon.storage.atomic import atomic_replacement


@dataclass(frozen=True)
class Cell:
    """One combination: its settings, such as ``train.seed=7``, the recipe that they make, and where it is trained."""

    settings: tuple[str, ...]
    recipe: Recipe
    folder: Path


@dataclass(frozen=True)
class Result:
    """How a combination did; ``value`` is its dev metric, or ``problem`` says why there is none."""

    cell: Cell
    value: float = 0.0
    epochs: int = 0
    seconds: float = 0.0
    problem: str = ""


def plan_grid(recipe: Path, settings: Sequence[str], grid: Sequence[str], out: Path) -> list[Cell]:
    """Every combination of the values of ``grid``, each entry of which is ``section.key=value,value...``."""
    axes = [_parse_axis(axis) for axis in grid]
    cells = []
    for chosen in product(*axes):
        loaded = load_recipe(recipe, [*settings, *chosen])
        cells.append(Cell(chosen, loaded, out / _folder_name(chosen)))
    if len({cell.recipe.train.dev_metric for cell in cells}) > 1:
        raise RecipeError("--grid train.dev_metric: values of several metrics cannot be compared, expected one metric")
    return cells


def run_grid(
    cells: Sequence[Cell], jobs: int, done: Callable[[Result], None], heard: Callable[[Cell, str], None]
) -> list[Result]:
    """Trains all combinations, ``jobs`` at a time, and gives them from the best to the worst, failed ones last.

    ``done`` hears of each as it ends, ``heard`` of every line that a training writes, from other threads. On Ctrl-C or
    SIGTERM every training stops with a whole checkpoint; if this process is killed, they end as well.
    """
    with lifeline() as line, ThreadPoolExecutor(jobs) as pool:
        trainings = _Trainings(*line)
        futures = [pool.submit(_train, cell, trainings, heard) for cell in cells]
        try:
            for future in as_completed(futures):
                done(future.result())
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            trainings.stop(signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)
            raise
    results = [future.result() for future in futures]
    lower = cells[0].recipe.train.dev_metric in LOWER_IS_BETTER
    return sorted(results, key=lambda result: (bool(result.problem), result.value if lower else -result.value))


def save_grid(results: Sequence[Result], out: Path) -> Path:
    """Writes the table as ``grid.tsv`` and the recipe of the best combination as ``best.toml``, which is given."""
    best = results[0]
    if best.problem:
        raise RunError(f"{best.cell.folder}: every combination failed, the first with: {best.problem}")
    with atomic_replacement(out / "grid.tsv") as new, new.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        names = [setting.partition("=")[0] for setting in best.cell.settings]
        writer.writerow([*names, f"dev_{best.cell.recipe.train.dev_metric}", "epochs", "seconds", "problem"])
        for result in results:
            values = [setting.partition("=")[2] for setting in result.cell.settings]
            writer.writerow([*values, f"{result.value:.6g}", result.epochs, result.seconds, result.problem])
    save_recipe(best.cell.recipe, out / "best.toml")
    return out / "best.toml"


def _parse_axis(axis: str) -> list[str]:
    key, _, values = axis.partition("=")
    if "." not in key or not values:
        raise RecipeError(f"--grid {axis}: expected section.key=value,value..., such as train.learning_rate=0.01,0.1")
    return [f"{key.strip()}={value.strip()}" for value in values.split(",")]


def _folder_name(settings: Sequence[str]) -> str:
    """The settings as one name; where a character had to be replaced, a number keeps names apart."""
    name = ",".join(settings)
    safe = re.sub(r"[^\w.,=+-]", "_", name)
    return safe if safe == name else f"{safe}-{zlib.crc32(name.encode()):08x}"


class _Trainings:
    """The processes of a grid: all of them can be stopped, and none is started after that."""

    def __init__(self, lifeline: int, environment: dict[str, str]) -> None:
        self._lifeline, self._environment = lifeline, environment
        self._running: list[subprocess.Popen[str]] = []
        self._lock, self._is_stopped = Lock(), False

    def run(self, command: list[str], heard: Callable[[str], None]) -> tuple[int, str]:
        """The exit status of a command and its last message; ``heard`` hears all of them."""
        with self._lock:
            if self._is_stopped:
                return 1, "stopped"
            process = self._start(command)
            self._running.append(process)
        assert process.stderr is not None
        last = "no message"
        with process.stderr as lines:
            for line in lines:
                heard(line)
                last = line.strip() or last
        return process.wait(), last

    def stop(self, signal_: signal.Signals) -> None:
        """Sends a signal to all that run."""
        with self._lock:
            self._is_stopped = True
            for process in self._running:
                process.send_signal(signal_)

    def _start(self, command: list[str]) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=(self._lifeline,),
            env=self._environment,
            start_new_session=True,  # Ctrl-C reaches this process alone, which passes it on once
        )


def _train(cell: Cell, trainings: _Trainings, heard: Callable[[Cell, str], None]) -> Result:
    """Trains one combination in a process of its own, without its test file."""
    recipe = cell.folder.with_name(f"{cell.folder.name}.toml")
    save_recipe(cell.recipe.model_copy(update={"data": cell.recipe.data.model_copy(update={"test": None})}), recipe)
    command = [sys.executable, "-m", "antiphon", "train", str(recipe), "--out", str(cell.folder), "--resume"]
    status, last = trainings.run([*command, "--threads", "1"], partial(heard, cell))
    if status:
        return Result(cell, problem=last)
    metrics = RunFolder.open(cell.folder).metrics()
    value = metrics[f"dev_{cell.recipe.train.dev_metric}"]
    return Result(cell, value, metrics["epochs"], metrics["training_seconds"])
