"""The state of a search, which any number of processes and machines share: an Optuna study in a database.

A trial waits, runs in one process, and is then complete, pruned or failed. One that has lost its process, or was given
back, is repeated by a further trial of the study, which resumes it from its last checkpoint: of trials that repeat each
other one counts. The first ``total`` of those that count make up the search.
"""

import hashlib
import json
import sqlite3
import time
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Literal

import optuna
from optuna.exceptions import ExperimentalWarning, StorageInternalError, UpdateFinishedTrialError
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback, fail_stale_trials, get_storage
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy import Connection, NullPool, event, make_url
from sqlalchemy.exc import SQLAlchemyError

from antiphon.exceptions import RunError
from antiphon.metrics.output_metrics import LOWER_IS_BETTER
from antiphon.settings_search.search_space import SearchSpace
from antiphon.storage.files import refuse_links
from antiphon.training.callback import EpochReport

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.filterwarnings("ignore", category=ExperimentalWarning)  # heartbeats

_HEARTBEAT_SECONDS, _GRACE_SECONDS = 5, 30
"""How often a process reports that it is alive, and after how long a silence its trials are repeated."""
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


@dataclass(frozen=True)
class SearchOptions:
    """How values are chosen, how many trials there are unless it is a grid, which are pruned, and the database."""

    sampler: Literal["grid", "random", "tpe"] = "grid"
    trials: int = 0
    pruner: Literal["none", "median", "hyperband"] = "none"
    seed: int = 1
    storage: str | None = None


class SettingsSearch:
    """A search as one of its processes sees it, between ``joined`` and its end."""

    _rdb: RDBStorage
    study: optuna.Study

    def __init__(self, space: SearchSpace, options: SearchOptions) -> None:
        self.space, self.options, self._running = space, options, set[int]()
        self._claiming = Lock()

    @cached_property
    def total(self) -> int:
        """The number of trials that there will be."""
        return sum(1 for _ in self.space.choices()) if self.options.sampler == "grid" else self.options.trials

    @property
    def is_over(self) -> bool:
        """Whether every trial has ended, in all processes."""
        trials = self.trials()[: self.total]
        return len(trials) == self.total and all(trial.state.is_finished() and not is_lost(trial) for trial in trials)

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Inside, this process takes part; a search of another recipe or space in the folder is refused."""
        self.space.out.mkdir(parents=True, exist_ok=True)
        over = Event()
        heartbeat = Thread(target=self._beat, args=(over,), daemon=True)
        with self._opened_database():
            self._open_study()
            for trial in self.trials():
                if trial.state == TrialState.FAIL:
                    _RETRY(self.study, trial)
            heartbeat.start()
            try:
                yield
            finally:
                over.set()
                heartbeat.join()

    def trials(self) -> list[FrozenTrial]:
        """The trials that count: of those that repeat each other the first that has not failed, or else the last."""
        repeated: dict[int, list[FrozenTrial]] = {}
        for trial in self.study.get_trials(deepcopy=False):
            first = _RETRY.retried_trial_number(trial)
            repeated.setdefault(trial.number if first is None else first, []).append(trial)
        return [next((each for each in same if each.state != TrialState.FAIL), same[-1]) for same in repeated.values()]

    def claim(self) -> Trial | None:
        """A trial for this process to train; None if all have ended or are being trained."""
        with self._claiming:  # threads of one process would repeat a lost trial twice
            fail_stale_trials(self.study)
            for trial in filter(is_lost, self.trials()):
                _RETRY(self.study, trial)
            while True:
                trials = self.trials()
                for rank, trial in enumerate(trials[: self.total]):
                    if trial.state == TrialState.WAITING and self._take(trial):
                        return self._with_values(trial, rank)
                if len(trials) >= self.total:
                    return None
                self.study.add_trial(optuna.create_trial(state=TrialState.WAITING))

    def report(self, trial: Trial, epoch: EpochReport) -> bool:
        """Records an epoch; whether the trial goes on: not if it is pruned, or was silent and is repeated elsewhere."""
        with suppress(UpdateFinishedTrialError):
            if epoch.epoch not in self._rdb.get_trial(trial._trial_id).intermediate_values:
                trial.report(epoch.value, epoch.epoch)
            trial.set_user_attr("max_epochs", epoch.max_epochs)
            trial.set_user_attr("seconds", epoch.seconds)
            return epoch.epoch >= epoch.max_epochs or not trial.should_prune()
        return False

    def complete(
        self, trial: Trial, value: float, epochs: int, seconds: float, perplexity: float | None = None
    ) -> None:
        """Ends a trial with its dev metric; its perplexity decides between equal values."""
        self._end(trial, TrialState.COMPLETE, value, epochs=epochs, seconds=seconds, perplexity=perplexity)

    def prune(self, trial: Trial) -> None:
        """Ends a trial whose pruning ``report`` has asked for."""
        self._end(trial, TrialState.PRUNED)

    def fail(self, trial: Trial, problem: str) -> None:
        """Ends a trial that could not be trained."""
        self._end(trial, TrialState.FAIL, problem=problem, kills=0)

    def give_back(self, trial: Trial, **attributes: Any) -> None:
        """Ends a trial that any process may repeat."""
        self._end(trial, TrialState.FAIL, **attributes)

    def _end(self, trial: Trial, state: TrialState, value: float | None = None, **attributes: Any) -> None:
        with suppress(UpdateFinishedTrialError):  # another process repeats it
            for name, attribute in attributes.items():
                trial.set_user_attr(name, attribute)
            self.study.tell(trial, value, state, skip_if_finished=True)
        self._running.discard(trial._trial_id)

    def _take(self, trial: FrozenTrial) -> bool:
        """Whether this process gets a waiting trial; the first heartbeat comes before, so that none runs without."""
        self._rdb.record_heartbeat(trial._trial_id)
        with suppress(UpdateFinishedTrialError):
            if self._rdb.set_trial_state_values(trial._trial_id, TrialState.RUNNING):
                self._running.add(trial._trial_id)
                return True
        return False

    def _with_values(self, trial: FrozenTrial, rank: int) -> Trial:
        """A trial with its values, which depend on its rank and not on the process that draws them."""
        if self.options.sampler == "grid":
            choice = next(islice(self.space.choices(), rank, None))
            self._rdb.set_trial_system_attr(trial._trial_id, "fixed_params", choice)
        seed = zlib.crc32(f"{self.options.seed} {rank}".encode())
        study = optuna.load_study(
            study_name=self.study.study_name,
            storage=self._storage,
            sampler=_make_sampler(self.options, seed),
            pruner=_make_pruner(self.options),
        )
        claimed = Trial(study, trial._trial_id)
        if claimed.user_attrs.get("problem"):
            claimed.set_user_attr("problem", "")
        for axis in self.space.axes:
            axis.suggest(claimed)
        return claimed

    def _beat(self, over: Event) -> None:
        while not over.wait(_HEARTBEAT_SECONDS):
            with suppress(SQLAlchemyError, StorageInternalError):  # a database that is away for a moment
                for trial_id in tuple(self._running):
                    self._rdb.record_heartbeat(trial_id)

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
        except (SQLAlchemyError, StorageInternalError, ImportError) as error:
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
        )
        self.study.set_user_attr("folder", folder)
        self.study.set_user_attr("search", now)


def _without_password(url: str) -> str:
    try:
        return make_url(url).render_as_string()
    except ValueError:  # SQLAlchemy raises it for ports alone
        raise RunError("--storage: the port is not a number, expected a URL such as postgresql://HOST/NAME") from None


def is_lost(trial: FrozenTrial) -> bool:
    """Whether a trial has lost its process or was given back, and is to be repeated."""
    return trial.state == TrialState.FAIL and not trial.user_attrs.get("problem")


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
                heartbeat_stale_trial_callback=_RETRY,
            )
            break
        except (SQLAlchemyError, StorageInternalError):
            if not attempts_left:
                raise
            time.sleep(_OPEN_PAUSE)
    if url is None:
        event.listen(rdb.engine, "begin", _begin_immediately)
    return rdb


def _begin_immediately(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


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
