"""Grid search: a recipe trained once for every combination of values, in parallel processes.

Every combination has its own recipe and run folder, so an interrupted search can be resumed, and a larger grid trains
only what is new. Test data are never used: the dev metric decides.
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

from antiphon.child_processes import Terminated, parent_pipe
from antiphon.exceptions import RecipeError, RunError
from antiphon.metrics import LOWER_IS_BETTER
from antiphon.recipe.recipe_file import load_recipe, save_recipe
from antiphon.recipe.schema import Recipe
from antiphon.runs.run_folder import RunFolder
from antiphon.storage.atomic import atomic_replacement


@dataclass(frozen=True)
class Cell:
    """One combination: its settings, such as ``train.seed=7``, its recipe and its run folder."""

    settings: tuple[str, ...]
    recipe: Recipe
    folder: Path


@dataclass(frozen=True)
class Result:
    """The result of a combination; ``value`` is its dev metric, or ``problem`` says why there is none."""

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
    cells: Sequence[Cell], jobs: int, on_result: Callable[[Result], None], on_line: Callable[[Cell, str], None]
) -> list[Result]:
    """Trains all combinations, ``jobs`` at a time; results from best to worst, failed ones last.

    ``on_result`` is called with each result, ``on_line`` with every line that a training prints, from other threads. On
    Ctrl-C or SIGTERM every training stops with a whole checkpoint; if this process is killed, they end as well.
    """
    with parent_pipe() as line, ThreadPoolExecutor(jobs) as pool:
        trainings = _Trainings(*line)
        futures = [pool.submit(_train, cell, trainings, on_line) for cell in cells]
        try:
            for future in as_completed(futures):
                on_result(future.result())
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            trainings.stop(signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)
            raise
    results = [future.result() for future in futures]
    lower = cells[0].recipe.train.dev_metric in LOWER_IS_BETTER
    return sorted(results, key=lambda result: (bool(result.problem), result.value if lower else -result.value))


def save_grid(results: Sequence[Result], out: Path) -> Path:
    """Writes the table as ``grid.tsv`` and the best recipe as ``best.toml``; the path of the latter."""
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
    """The settings as a file name; if a character had to be replaced, a number is added to keep names unique."""
    name = ",".join(settings)
    safe = re.sub(r"[^\w.,=+-]", "_", name)
    return safe if safe == name else f"{safe}-{zlib.crc32(name.encode()):08x}"


class _Trainings:
    """The processes of a grid: all of them can be stopped, and none is started after that."""

    def __init__(self, parent_pipe: int, environment: dict[str, str]) -> None:
        self._parent_pipe, self._environment = parent_pipe, environment
        self._running: list[subprocess.Popen[str]] = []
        self._lock, self._is_stopped = Lock(), False

    def run(self, command: list[str], on_line: Callable[[str], None]) -> tuple[int, str]:
        """The exit status of a command and its last message; ``on_line`` is called with each message."""
        with self._lock:
            if self._is_stopped:
                return 1, "stopped"
            process = self._start(command)
            self._running.append(process)
        assert process.stderr is not None
        last = "no message"
        with process.stderr as lines:
            for line in lines:
                on_line(line)
                last = line.strip() or last
        return process.wait(), last

    def stop(self, signal_: signal.Signals) -> None:
        """Sends a signal to all running processes."""
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
            pass_fds=(self._parent_pipe,),
            env=self._environment,
            start_new_session=True,  # Ctrl-C reaches only this process, which passes it on once
        )


def _train(cell: Cell, trainings: _Trainings, on_line: Callable[[Cell, str], None]) -> Result:
    """Trains one combination in its own process, without its test file."""
    recipe = cell.folder.with_name(f"{cell.folder.name}.toml")
    save_recipe(cell.recipe.model_copy(update={"data": cell.recipe.data.model_copy(update={"test": None})}), recipe)
    command = [sys.executable, "-m", "antiphon", "train", str(recipe), "--out", str(cell.folder), "--resume"]
    status, last = trainings.run([*command, "--threads", "1"], partial(on_line, cell))
    if status:
        return Result(cell, problem=last)
    metrics = RunFolder.open(cell.folder).metrics()
    value = metrics[f"dev_{cell.recipe.train.dev_metric}"]
    return Result(cell, value, metrics["epochs"], metrics["training_seconds"])
