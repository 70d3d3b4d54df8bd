"""The trials of a search, each trained in a process of its own, so that a crash of one does not end the search.

Every choice of values has its own recipe and run folder, so an interrupted search can be resumed, and a larger grid
trains only what is new. Test data are never used: the dev metric decides. What was found is a table of all trials from
best to worst, and the best recipe.
"""

import csv
import math
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle, islice
from multiprocessing import Pipe
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event, Lock
from typing import IO, Literal, NamedTuple

from optuna.trial import FrozenTrial, Trial, TrialState

from antiphon.child_processes import Terminated, parent_pipe
from antiphon.device import visible_gpus
from antiphon.exceptions import AntiphonError, InputError, RunError
from antiphon.metrics.output_metrics import LOWER_IS_BETTER
from antiphon.recipe.recipe_file import save_recipe
from antiphon.recipe.schema import Recipe
from antiphon.runs.run_folder import RunFolder
from antiphon.settings_search.search import SettingsSearch, is_lost
from antiphon.settings_search.search_space import SearchSpace
from antiphon.storage.files import atomic_replacement, refuse_links
from antiphon.training.callback import TRIAL_VARIABLE, EpochReport

_JOBS = 2
"""Trials at the same time if nothing says how many."""
_POLL_SECONDS = 0.5
"""How often the table is refreshed, and a process without a trial looks for one."""
_MAX_KILLS = 3
"""A trial has failed once its training was killed this many times."""
_LONGEST_MESSAGE = 4096


class Slot(NamedTuple):
    """Where one trial at a time is trained: ``gpu`` is a name in CUDA_VISIBLE_DEVICES, or empty for no choice."""

    device: str = "auto"
    gpu: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """What a process of this slot finds in its environment."""
        return {"CUDA_VISIBLE_DEVICES": self.gpu} if self.gpu else {}


def make_slots(devices: str | None, jobs: int | None) -> list[Slot]:
    """As many slots as ``jobs``, or as devices are listed, such as ``0,0,1`` or ``cpu``; else the GPUs in turn."""
    gpus = visible_gpus()
    if devices is None:
        return list(islice(cycle([Slot(gpu=gpu) for gpu in gpus] or [Slot()]), jobs or _JOBS))
    known = {str(index): Slot(gpu=gpu) for index, gpu in enumerate(gpus)} | {"cpu": Slot(device="cpu")}
    names = [name.strip() for name in devices.split(",")]
    for name in names:
        if name not in known:
            raise InputError(
                f"--devices {name}: not found on this machine, expected one or more of {', '.join(known)}, separated "
                "by commas"
            )
    return list(islice(cycle(known[name] for name in names), jobs or len(names)))


def run_trials(search: SettingsSearch, slots: Sequence[Slot], show: Callable[[], None]) -> None:
    """Trains trials until all have ended, one at a time in each slot; ``show`` is called twice a second.

    On Ctrl-C or SIGTERM every training stops with a complete checkpoint; if this process is killed, they end as well.
    """
    with parent_pipe() as (pipe, environment), ThreadPoolExecutor(len(slots)) as pool:
        trainings = Trainings(search, pipe, environment)
        futures = [pool.submit(trainings.work, slot) for slot in slots]
        try:
            while pending := wait(futures, _POLL_SECONDS, FIRST_EXCEPTION).not_done:
                show()
                for future in set(futures) - pending:
                    future.result()
        except BaseException as error:
            trainings.stop(signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)
            raise
    for future in futures:
        future.result()
    show()


class Trainings:
    """The trainings of this process: all of them can be stopped, and none is started after that."""

    def __init__(self, search: SettingsSearch, parent_pipe: int, environment: dict[str, str]) -> None:
        self._search, self._parent_pipe, self._environment = search, parent_pipe, environment
        self._running: list[subprocess.Popen[bytes]] = []
        self._lock, self._stopped = Lock(), Event()

    def work(self, slot: Slot) -> None:
        """Trains one trial after another, and waits while other processes train the last ones: one may be lost."""
        while not self._stopped.is_set():
            trial = self._search.claim()
            if trial is not None:
                self._train(trial, slot)
            elif self._search.is_over:
                return
            else:
                self._stopped.wait(_POLL_SECONDS)

    def stop(self, signal_: signal.Signals) -> None:
        """Sends a signal to all trainings."""
        with self._lock:
            self._stopped.set()
            for process in self._running:
                process.send_signal(signal_)

    def _train(self, trial: Trial, slot: Slot) -> None:
        """Trains a trial, without its test file, and records how it ended."""
        search = self._search
        settings = search.space.settings_of(trial.params)
        folder = search.space.folder(settings)
        try:
            command = _command(search.space.recipe(settings), folder, slot)
        except AntiphonError as error:  # values that make no recipe together
            search.fail(trial, str(error))
            return
        goes_on = True

        def report(epoch: EpochReport) -> bool:
            nonlocal goes_on
            goes_on = search.report(trial, epoch)
            return goes_on

        with TemporaryFile() as messages:
            status = self._status(command, slot, messages, report)
            if self._stopped.is_set():
                search.give_back(trial)
            elif not goes_on:
                search.prune(trial)
            elif status < 0:
                _record_kill(search, trial, -status)
            elif status:
                search.fail(trial, _last_line(messages))
            else:
                _record_value(search, trial, RunFolder.open(folder))

    def _status(
        self, command: Sequence[str], slot: Slot, messages: IO[bytes], report: Callable[[EpochReport], bool]
    ) -> int:
        """The exit status of a training, negative for the signal that killed it; ``report`` says after each epoch
        whether it goes on.
        """
        ours, theirs = Pipe()
        with ours:
            with theirs, self._lock:
                if self._stopped.is_set():
                    return 0
                process = subprocess.Popen(
                    command,
                    stdout=subprocess.DEVNULL,
                    stderr=messages,
                    pass_fds=(self._parent_pipe, theirs.fileno()),
                    env={**self._environment, **slot.environment, TRIAL_VARIABLE: str(theirs.fileno())},
                    start_new_session=True,  # Ctrl-C reaches only this process, which passes it on once
                )
                self._running.append(process)
            with suppress(EOFError, OSError):  # the training has ended
                while True:
                    ours.send(report(ours.recv()))
            return process.wait()


def _command(recipe: Recipe, folder: Path, slot: Slot) -> list[str]:
    """The command that trains a recipe, or resumes the run in the folder."""
    refuse_links(folder.parent, [folder.name])
    file = folder.with_name(f"{folder.name}.toml")
    save_recipe(recipe.model_copy(update={"data": recipe.data.model_copy(update={"test": None})}), file)
    command = [sys.executable, "-m", "antiphon", "train", str(file), "--out", str(folder), "--resume"]
    return [*command, "--threads", "1", "--device", slot.device]


def _last_line(messages: IO[bytes]) -> str:
    messages.seek(max(0, messages.seek(0, 2) - _LONGEST_MESSAGE))
    lines = messages.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "no message")


def _record_kill(search: SettingsSearch, trial: Trial, number: int) -> None:
    """Gives back a trial whose training was killed, or after ``_MAX_KILLS`` times records that it failed."""
    kills = trial.user_attrs.get("kills", 0) + 1
    if kills < _MAX_KILLS:
        search.give_back(trial, kills=kills)
    else:
        search.fail(trial, f"killed {kills} times, the last time by {signal.Signals(number).name}")


def _record_value(search: SettingsSearch, trial: Trial, run: RunFolder) -> None:
    """Records the dev metric of a trial whose training has ended."""
    metrics, metric = run.metrics(), search.space.dev_metric
    value = float(metrics[f"dev_{metric}"])
    if math.isfinite(value):
        search.complete(trial, value, metrics["epochs"], metrics["training_seconds"], metrics.get("dev_perplexity"))
    else:
        search.fail(trial, f"dev {metric} is {value}, expected a finite number")


State = Literal["complete", "pruned", "failed", "running", "waiting"]
_STATES: dict[TrialState, State] = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
}


@dataclass(frozen=True)
class TrialResult:
    """A trial with settings such as ``train.seed=7``; ``value`` is its dev metric so far.

    If it failed, ``problem`` says why. Trials with equal values are ranked by ``perplexity``.
    """

    settings: tuple[str, ...]
    value: float = 0.0
    epochs: int = 0
    seconds: float = 0.0
    problem: str = ""
    state: State = "complete"
    number: int = 0
    max_epochs: int = 0
    perplexity: float | None = None

    @property
    def tie_break(self) -> tuple[float, int]:
        """The lower, the better among trials with the same value."""
        return (math.inf if self.perplexity is None else self.perplexity, self.number)


def results_of(search: SettingsSearch) -> list[TrialResult]:
    """All trials that have begun, from best to worst, then those that were pruned, failed, run and wait again."""
    trials = [trial for trial in search.trials() if len(trial.params) == len(search.space.axes)]
    sign, order = 1 if search.space.dev_metric in LOWER_IS_BETTER else -1, list(_STATES.values())
    results = [_result(trial, search.space) for trial in trials]
    return sorted(results, key=lambda each: (order.index(each.state), sign * each.value, each.tie_break))


def _result(trial: FrozenTrial, space: SearchSpace) -> TrialResult:
    attributes, epochs = trial.user_attrs, trial.intermediate_values
    return TrialResult(
        settings=space.settings_of(trial.params),
        value=trial.value if trial.value is not None else epochs[max(epochs)] if epochs else 0.0,
        epochs=attributes.get("epochs", max(epochs, default=0)),
        seconds=attributes.get("seconds", 0.0),
        problem=attributes.get("problem", ""),
        state="waiting" if is_lost(trial) else _STATES[trial.state],
        number=trial.number,
        max_epochs=attributes.get("max_epochs", 0),
        perplexity=attributes.get("perplexity"),
    )


def save_results(results: Sequence[TrialResult], space: SearchSpace) -> Path:
    """Writes the table as ``grid.tsv`` and the best recipe as ``best.toml``; the path of the latter."""
    best, out = results[0], space.out
    if best.state != "complete":
        raise RunError(f"{space.folder(best.settings)}: every combination failed, the first with: {best.problem}")
    with atomic_replacement(out / "grid.tsv") as new, new.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        names = [setting.partition("=")[0] for setting in best.settings]
        writer.writerow([*names, f"dev_{space.dev_metric}", "epochs", "seconds", "problem", "state"])
        for result in results:
            values = [setting.partition("=")[2] for setting in result.settings]
            measured = [f"{result.value:.6g}", result.epochs, result.seconds]
            writer.writerow([*values, *measured, result.problem, result.state])
    save_recipe(space.recipe(best.settings), out / "best.toml")
    return out / "best.toml"
