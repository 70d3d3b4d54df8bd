"""A search, which any number of processes and machines share: an Optuna study in a database.

Every process trains one trial after another. Optuna gives each trial to one process and, if that process is silent for
too long, to another one, which resumes the run of the trial from its last checkpoint. Test data are never used: the dev
metric decides.
"""

import csv
import hashlib
import json
import math
import sqlite3
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.exceptions import ExperimentalWarning, StorageInternalError, UpdateFinishedTrialError
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback, fail_stale_trials, get_storage
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy import NullPool, event, make_url, text
from sqlalchemy.exc import SQLAlchemyError
from torch import nn

from antiphon.exceptions import AntiphonError, RunError
from antiphon.metrics.output_metrics import LOWER_IS_BETTER
from antiphon.recipe.recipe_file import save_recipe
from antiphon.recipe.schema import Recipe
from antiphon.runs.run_folder import RunFolder
from antiphon.settings_search.search_space import SearchSpace
from antiphon.storage.files import atomic_replacement, refuse_links
from antiphon.training.callback import Callback
from antiphon.training.loop import Interrupted
from antiphon.training.state import History

optuna.logging.set_verbosity(optuna.logging.CRITICAL)
warnings.filterwarnings("ignore", category=ExperimentalWarning)  # heartbeats

_HEARTBEAT_SECONDS, _GRACE_SECONDS = 5, 30
"""How often a process reports that it is alive, and after how long a silence its trial is repeated."""
_POLL_SECONDS = 1.0
"""How often a process without a trial looks for one that was lost."""
_LOCK_SECONDS = 60.0
"""How long a process waits for others that write into an SQLite file."""
_OPEN_ATTEMPTS = 5
"""Processes that make the tables of a new database at the same time disturb each other."""
_OPEN_PAUSE = 0.5
_STARTUP_TRIALS = 4
"""Trials that end before the median pruner starts to prune."""
_MAX_RANDOM_TRIALS, _RANDOM_PART = 10, 3
"""TPE draws a third of the trials at random before it begins to learn, but at most this many."""
_RETRY = RetryHeartbeatStaleTrialCallback(inherit_intermediate_values=True)
_MAX_RETRIES = 2
_RETRY_KILLED = RetryHeartbeatStaleTrialCallback(max_retry=_MAX_RETRIES, inherit_intermediate_values=True)
"""A trial that kills its process is not repeated for ever."""

TrainTrial = Callable[[Recipe, Path, Callback], None]
"""Trains a recipe into a folder, or resumes the run there."""
State = Literal["complete", "pruned", "failed", "running", "waiting"]
_STATES: dict[TrialState, State] = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
}


class _DriverError(AntiphonError):
    """The library of a database is not installed."""


@dataclass(frozen=True)
class SearchOptions:
    """How values are chosen, how many trials there are unless it is a grid, which are pruned, and the database."""

    sampler: Literal["grid", "random", "tpe"] = "grid"
    trials: int = 0
    pruner: Literal["none", "median", "hyperband"] = "none"
    seed: int = 1
    storage: str | None = None


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
    perplexity: float | None = None

    @property
    def tie_break(self) -> tuple[float, int]:
        """The lower, the better among trials with the same value."""
        return (math.inf if self.perplexity is None else self.perplexity, self.number)


class TrialReport(Callback):
    """Reports every epoch of a trial, also those before a resume, and ends it if it falls behind others."""

    def __init__(self, trial: Trial) -> None:
        self._trial, self._metric, self._max_epochs = trial, "", 0

    def on_train_begin(self, history: History, max_epochs: int) -> None:
        """Reports the epochs before a resume."""
        self._metric, self._max_epochs = f"dev_{history.metric}", max_epochs
        for row in history.rows:
            self._report(row)

    def on_epoch_end(self, epoch: int, metrics: Mapping[str, float], model: nn.Module) -> None:
        """Reports an epoch."""
        self._report(metrics)

    def _report(self, row: Mapping[str, float]) -> None:
        epoch = int(row["epoch"])
        if epoch not in self._trial.storage.get_trial(self._trial._trial_id).intermediate_values:
            self._trial.report(row[self._metric], epoch)
        if epoch < self._max_epochs and self._trial.should_prune():
            raise optuna.TrialPruned


class SettingsSearch:
    """A search as one of its processes sees it, between ``joined`` and its end."""

    study: optuna.Study
    _rdb: RDBStorage

    def __init__(self, space: SearchSpace, options: SearchOptions) -> None:
        self.space, self.options = space, options

    @property
    def total(self) -> int:
        """The number of trials that there will be."""
        return sum(1 for _ in self.space.choices()) if self.options.sampler == "grid" else self.options.trials

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Inside, this process takes part; a search of another recipe or space in the folder is refused.

        Trials that failed before are tried again.
        """
        self.space.out.mkdir(parents=True, exist_ok=True)
        with self._opened_database():
            self._open_study()
            for trial in self._trials():
                if trial.state == TrialState.FAIL and not _is_repeated(trial):
                    _RETRY(self.study, trial)
            if self.options.sampler == "grid":
                for choice in self.space.choices():
                    self.study.enqueue_trial(choice, skip_if_exists=True)
            yield

    def run(self, train: TrainTrial, show: Callable[[list[TrialResult]], None]) -> None:
        """Trains trials until all have ended, also those of other processes; ``show`` is given all after each."""
        while True:
            fail_stale_trials(self.study)
            self._fail_unheard()
            states = Counter(trial.state for trial in self.study.get_trials(deepcopy=False) if not _is_lost(trial))
            may_draw = self.options.sampler != "grid" and states.total() < self.total
            if states[TrialState.WAITING] or may_draw:
                self._run_one(train)
            elif states[TrialState.RUNNING]:
                time.sleep(_POLL_SECONDS)
            else:
                return
            show(self.results())

    def _fail_unheard(self) -> None:
        """Repeats trials whose process died before their first heartbeat, of which Optuna takes no notice."""
        with self._rdb.engine.connect() as connection:
            heard = set(connection.execute(text("SELECT trial_id FROM trial_heartbeats")).scalars())
        for trial in self.study.get_trials(deepcopy=False, states=[TrialState.RUNNING]):
            started = trial.datetime_start or datetime.now()
            if trial._trial_id not in heard and datetime.now() - started > timedelta(seconds=_GRACE_SECONDS):
                with suppress(UpdateFinishedTrialError):  # another process repeats it
                    self._storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
                    _RETRY_KILLED(self.study, trial)

    def _run_one(self, train: TrainTrial) -> None:
        try:
            self.study.optimize(partial(self._train, train), n_trials=1, catch=(AntiphonError,), gc_after_trial=True)
        except UpdateFinishedTrialError:  # the trial was silent for too long, and is repeated
            return
        except ValueError as error:
            if "Cannot tell" not in str(error):
                raise

    def _train(self, train: TrainTrial, trial: Trial) -> float:
        """The dev metric of a trial, trained without the test file."""
        seed = zlib.crc32(f"{self.options.seed} {trial.number}".encode())
        self.study.sampler = _make_sampler(self.options, seed)  # values do not depend on the process that draws them
        for axis in self.space.axes:
            axis.suggest(trial)
        trial.set_user_attr("problem", "")
        settings = self.space.settings_of(trial.params)
        folder, metric = self.space.folder(settings), self.space.dev_metric
        try:
            refuse_links(self.space.out, [folder.name])
            recipe = self.space.recipe(settings)
            recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"test": None})})
            train(recipe, folder, TrialReport(trial))
            metrics = RunFolder.open(folder).metrics()
            value = float(metrics[f"dev_{metric}"])
            if not math.isfinite(value):
                raise RunError(f"dev {metric} is {value}, expected a finite number")
        except AntiphonError as error:
            trial.set_user_attr("problem", str(error))
            raise
        except (KeyboardInterrupt, Interrupted):  # it waits for another process, or for the next start
            _RETRY(self.study, self.study.get_trials(deepcopy=False)[trial.number])
            raise
        found = {"epochs": metrics["epochs"], "seconds": metrics["training_seconds"]}
        for name, attribute in (found | {"perplexity": metrics.get("dev_perplexity")}).items():
            trial.set_user_attr(name, attribute)
        return value

    def results(self) -> list[TrialResult]:
        """All trials that have begun, from best to worst, then those that were pruned, failed, run and wait again."""
        sign, order = 1 if self.space.dev_metric in LOWER_IS_BETTER else -1, list(_STATES.values())
        results = [_result(trial, self.space) for trial in self._trials()]
        return sorted(results, key=lambda each: (order.index(each.state), sign * each.value, each.tie_break))

    def _trials(self) -> list[FrozenTrial]:
        """The trials that have values: of those with the same the first that is complete, or else the last."""
        found: dict[tuple[str, ...], list[FrozenTrial]] = {}
        for trial in self.study.get_trials(deepcopy=False):
            if len(trial.params) == len(self.space.axes):
                found.setdefault(self.space.settings_of(trial.params), []).append(trial)
        return [next((each for each in same if each.state == TrialState.COMPLETE), same[-1]) for same in found.values()]

    @contextmanager
    def _opened_database(self) -> Iterator[None]:
        """Inside, the database is open, and errors of it are one sentence."""
        url, file = self.options.storage, self.space.out / "search.db"
        place, advice = str(file), "; if it is damaged, move it away and start again: trained runs are found again"
        try:
            if url is not None:
                place, advice = "--storage", ""
                place = f"--storage {_without_password(url)}"
            refuse_links(self.space.out, [file.name])
            self._rdb = _open_database(url, file)
            self._storage = get_storage(self._rdb)
            try:
                yield
            finally:
                self._rdb.engine.dispose()
        except (SQLAlchemyError, StorageInternalError, _DriverError) as error:
            cause = error.__cause__ or error
            reason = str(getattr(cause, "orig", cause)).strip().partition("\n")[0].rstrip(".")
            raise RunError(f"{place}: {reason}, expected a database that can be read and written{advice}") from error

    def _open_study(self) -> None:
        """Opens the study of this space, unless the folder has another search; further values make a further study."""
        folder = "" if self.options.storage is None else str(self.space.out.absolute())
        axes = {f"--grid {axis.key}": axis.text for axis in self.space.axes}
        now = self.space.fixed | axes | {"--sampler": "grid" if self.options.sampler == "grid" else "random or tpe"}
        for study in self._storage.get_all_studies():
            before = study.user_attrs.get("search")  # not there if a process was killed before it began
            if before is not None and study.user_attrs["folder"] == folder:
                _refuse_difference(self.space.out, before, now)
        self.study = optuna.create_study(
            storage=self._storage,
            study_name=hashlib.sha256(json.dumps([folder, now], sort_keys=True).encode()).hexdigest()[:16],
            direction="minimize" if self.space.dev_metric in LOWER_IS_BETTER else "maximize",
            load_if_exists=True,
            pruner=_make_pruner(self.options),
        )
        self.study.set_user_attr("folder", folder)
        self.study.set_user_attr("search", now)


def _without_password(url: str) -> str:
    try:
        return make_url(url).render_as_string()
    except ValueError:  # SQLAlchemy raises it for ports alone
        raise RunError("--storage: the port is not a number, expected a URL such as postgresql://HOST/NAME") from None


def _open_database(url: str | None, file: Path) -> RDBStorage:
    """The database of a URL, or if there is none an SQLite file, where a transaction excludes all others."""
    engine: dict[str, Any] = {"pool_pre_ping": True}
    if url is None:
        connect = partial(sqlite3.connect, file, timeout=_LOCK_SECONDS, isolation_level=None)
        engine = {"creator": connect, "poolclass": NullPool}
    for attempts_left in reversed(range(_OPEN_ATTEMPTS)):
        try:
            rdb = RDBStorage(
                (url or "sqlite:///search.db").replace("{", "{{").replace("}", "}}"),
                engine,
                heartbeat_interval=_HEARTBEAT_SECONDS,
                grace_period=_GRACE_SECONDS,
                heartbeat_stale_trial_callback=_RETRY_KILLED,
            )
            break
        except ImportError as error:
            raise _DriverError(str(error)) from error
        except (SQLAlchemyError, StorageInternalError):
            if not attempts_left:
                raise
            time.sleep(_OPEN_PAUSE)
    if url is None:
        event.listen(rdb.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return rdb


def _is_lost(trial: FrozenTrial) -> bool:
    """Whether a trial has lost its process."""
    return trial.state == TrialState.FAIL and not trial.user_attrs.get("problem")


def _is_repeated(trial: FrozenTrial) -> bool:
    """Whether Optuna repeats a lost trial by itself, at once."""
    return _is_lost(trial) and len(_RETRY.retry_history(trial)) < _MAX_RETRIES


def _result(trial: FrozenTrial, space: SearchSpace) -> TrialResult:
    attributes, epochs = trial.user_attrs, trial.intermediate_values
    return TrialResult(
        settings=space.settings_of(trial.params),
        value=trial.value if trial.value is not None else epochs[max(epochs)] if epochs else 0.0,
        epochs=attributes.get("epochs", max(epochs, default=0)),
        seconds=attributes.get("seconds", trial.duration.total_seconds() if trial.duration else 0.0),
        problem=attributes.get("problem") or ("its process was killed" if _is_lost(trial) else ""),
        state=_STATES[trial.state],
        number=trial.number,
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


def _make_sampler(options: SearchOptions, seed: int) -> BaseSampler:
    at_random = min(_MAX_RANDOM_TRIALS, 1 + options.trials // _RANDOM_PART)
    if options.sampler == "tpe":
        return TPESampler(seed=seed, multivariate=True, n_startup_trials=at_random)
    return RandomSampler(seed)


def _make_pruner(options: SearchOptions) -> BasePruner:
    if options.pruner == "median":
        return MedianPruner(n_startup_trials=_STARTUP_TRIALS)
    return HyperbandPruner() if options.pruner == "hyperband" else NopPruner()


def _refuse_difference(folder: Path, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Refuses to join a search that is another, and says in what; a grid may get further values."""
    may_grow = before["--sampler"] == now["--sampler"] == "grid"
    for key in {**before, **now}:
        is_grown = may_grow and key.startswith("--grid") and key in before and key in now
        if before.get(key) != now.get(key) and not is_grown:
            old, new = (side.get(key, "not set") for side in (before, now))
            raise RunError(
                f"{folder}: searched with {key} = {old}, now {new}; expected the same search; choose another --out"
            )
