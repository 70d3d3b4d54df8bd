"""The trials of a search, trained in parallel processes; their table and the best recipe are written.

Every choice of values has its own recipe and run folder, so an interrupted search can be resumed, and a larger grid
trains only what is new. Test data are never used: the dev metric decides.
"""

import csv
import math
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

from optuna.trial import Trial

from antiphon.child_processes import Terminated, parent_pipe
from antiphon.exceptions import AntiphonError, RunError
from antiphon.recipe.recipe_file import save_recipe
from antiphon.recipe.schema import Recipe
from antiphon.runs.run_folder import RunFolder
from antiphon.settings_search.search_space import SearchSpace
from antiphon.settings_search.shared_search import SettingsSearch, TrialResult
from antiphon.settings_search.trial_process import ProcessResult, TrialProcesses
from antiphon.settings_search.trial_report import EpochReport
from antiphon.settings_search.trial_slots import Slot
from antiphon.storage.atomic import atomic_replacement

_POLL_SECONDS = 0.5
"""How often the table is refreshed, and a process without a trial looks for one."""
_MAX_KILLS = 3
"""A trial has failed once its training was killed this many times."""


def run_trials(
    search: SettingsSearch, slots: Sequence[Slot], show: Callable[[list[TrialResult]], None]
) -> list[TrialResult]:
    """Trains trials until all have ended, one at a time in each slot; results from best to worst, failed ones last.

    ``show`` is called with all trials twice a second. On Ctrl-C or SIGTERM every training stops with a complete
    checkpoint; if this process is killed, they end as well.
    """
    with parent_pipe() as (pipe, environment), ThreadPoolExecutor(len(slots)) as pool:
        processes = TrialProcesses(pipe, environment)
        futures = [pool.submit(_work, search, slot, processes) for slot in slots]
        try:
            while pending := wait(futures, _POLL_SECONDS, FIRST_EXCEPTION).not_done:
                show(search.results())
                for future in set(futures) - pending:
                    future.result()
        except BaseException as error:
            processes.stop(signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)
            raise
    for future in futures:
        future.result()
    results = search.results()
    show(results)
    return results


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


def _work(search: SettingsSearch, slot: Slot, processes: TrialProcesses) -> None:
    """Trains one trial after another, and waits while other processes train the last ones: one may be lost."""
    while not processes.are_stopped:
        trial = search.claim()
        if trial is not None:
            _train(search, trial, slot, processes)
        elif search.is_over:
            return
        else:
            processes.wait(_POLL_SECONDS)


def _train(search: SettingsSearch, trial: Trial, slot: Slot, processes: TrialProcesses) -> None:
    """Trains a trial in its own process, without its test file, and records how it ended."""
    settings = search.space.settings_of(trial.params)
    try:
        command = _command(search.space.recipe(settings), search.space.folder(settings), slot)
    except AntiphonError as error:  # values that make no recipe together
        search.fail(trial, str(error))
        return
    goes_on = True

    def report(epoch: EpochReport) -> bool:
        nonlocal goes_on
        goes_on = search.report(trial, epoch)
        return goes_on

    ended = processes.run(command, slot.environment, report)
    if ended is None or processes.are_stopped:
        search.give_back(trial)
    elif not goes_on:
        search.prune(trial)
    elif ended.status < 0:
        _record_kill(search, trial, ended)
    elif ended.status:
        search.fail(trial, ended.message)
    else:
        _record_value(search, trial, RunFolder.open(search.space.folder(settings)))


def _command(recipe: Recipe, folder: Path, slot: Slot) -> list[str]:
    """The command that trains a recipe, or resumes the run in the folder."""
    file = folder.with_name(f"{folder.name}.toml")
    save_recipe(recipe.model_copy(update={"data": recipe.data.model_copy(update={"test": None})}), file)
    command = [sys.executable, "-m", "antiphon", "train", str(file), "--out", str(folder), "--resume"]
    return [*command, "--threads", "1", "--device", slot.device]


def _record_kill(search: SettingsSearch, trial: Trial, ended: ProcessResult) -> None:
    """Gives back a trial whose training was killed, or after ``_MAX_KILLS`` times records that it failed."""
    kills = trial.user_attrs.get("losses", 0) + 1  # as journals name it
    if kills < _MAX_KILLS:
        search.give_back(trial, losses=kills)
    else:
        search.fail(trial, f"killed {kills} times, the last time by {signal.Signals(-ended.status).name}")


def _record_value(search: SettingsSearch, trial: Trial, run: RunFolder) -> None:
    """Records the dev metric of a trial whose training has ended."""
    metrics, metric = run.metrics(), search.space.dev_metric
    value = float(metrics[f"dev_{metric}"])
    if math.isfinite(value):
        search.complete(trial, value, metrics["epochs"], metrics["training_seconds"], metrics.get("dev_perplexity"))
    else:
        search.fail(trial, f"dev {metric} is {value}, expected a finite number")
