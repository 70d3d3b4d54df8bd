"""The state of a search, which any number of processes and machines share: an Optuna study in a journal on a disk.

A trial waits, runs in one process, and is then complete, pruned or failed. One whose process is gone waits again, and
is resumed from its last checkpoint by the process that claims it. All changes are made under one lock.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.storages.journal import JournalStorage
from optuna.trial import FrozenTrial, Trial, TrialState

from antiphon.exceptions import RunError
from antiphon.metrics.output_metrics import LOWER_IS_BETTER
from antiphon.settings_search.live_workers import SearchWorker
from antiphon.settings_search.samplers import Pruner, Sampler, make_pruner, make_sampler, silence_optuna
from antiphon.settings_search.search_space import SearchSpace
from antiphon.settings_search.shared_journal import Journal, SharedLock
from antiphon.settings_search.trial_report import EpochReport

JOURNAL = "search.journal"
State = Literal["waiting", "running", "complete", "pruned", "failed"]
_STATES: dict[TrialState, State] = {
    TrialState.WAITING: "waiting",
    TrialState.RUNNING: "running",
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}
_ORDER = ("complete", "pruned", "failed", "running", "waiting")


@dataclass(frozen=True)
class SearchOptions:
    """How values are chosen, how many trials there are, and which are pruned; ``trials`` does not apply to a grid."""

    sampler: Sampler = "grid"
    trials: int = 0
    pruner: Pruner = "none"
    seed: int = 1


@dataclass(frozen=True)
class TrialResult:
    """A trial with settings such as ``train.seed=7``; ``value`` is its dev metric so far.

    If it failed, ``problem`` says why. Trials with equal values are ranked by ``perplexity``, which journals of earlier
    versions do not have.
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


class SettingsSearch:
    """A search as one of its processes sees it, between ``joined`` and its end."""

    def __init__(self, space: SearchSpace, options: SearchOptions) -> None:
        self.space, self.options = space, options
        self._worker = SearchWorker(space.out / "workers")
        self._lock = SharedLock(space.out, space.out / "search.lock")

    @property
    def total(self) -> int:
        """The number of trials that there will be."""
        return sum(1 for _ in self.space.choices()) if self._is_grid else self.options.trials

    @property
    def is_over(self) -> bool:
        """Whether every trial has ended, in all processes."""
        trials = self.study.get_trials(deepcopy=False)
        return not self._can_draw(trials) and all(trial.state.is_finished() for trial in trials)

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Inside, this process takes part; a search of another recipe or space in the folder is refused."""
        silence_optuna()
        self.space.out.mkdir(parents=True, exist_ok=True)
        try:
            with self._lock, _readable(self.space.out / JOURNAL):
                self._storage = JournalStorage(Journal(self.space.out / JOURNAL))
                self._refuse_other_search()
                self.study = self._open_study()
                self._worker.start()
                self._enqueue()
            yield
        finally:
            self._worker.end()

    def claim(self) -> Trial | None:
        """A trial for this process to train; None if all have ended or are being trained."""
        with self._lock:
            trials = self.study.get_trials(deepcopy=False)
            was_lost = [self._give_back_lost(trial) for trial in trials if trial.state == TrialState.RUNNING]
            is_waiting = any(was_lost) or any(trial.state == TrialState.WAITING for trial in trials)
            if not is_waiting and not self._can_draw(trials):
                return None
            trial = self.study.ask(self.space.distributions)
            trial.set_user_attr("worker", self._worker.name)
            return trial

    def report(self, trial: Trial, epoch: EpochReport) -> bool:
        """Records an epoch; whether the trial goes on: not if it is pruned, or another process has taken it over."""
        if not self._is_ours(trial):
            return False
        if epoch.epoch not in self._frozen(trial).intermediate_values:
            trial.report(epoch.value, epoch.epoch)
            for name, value in (("max_epochs", epoch.max_epochs), ("seconds", epoch.seconds)):
                trial.set_user_attr(name, value)
        return epoch.epoch >= epoch.max_epochs or not trial.should_prune()

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
        self._end(trial, TrialState.FAIL, problem=problem)

    def give_back(self, trial: Trial, **attributes: Any) -> None:
        """Lets a trial that has not ended wait for any process."""
        with self._lock:
            if self._is_ours(trial):
                self._set(trial, attributes)
                self._storage.set_trial_state_values(trial._trial_id, TrialState.WAITING)

    def results(self) -> list[TrialResult]:
        """All trials that have begun, from best to worst, then those that were pruned, failed, run and wait again."""
        trials = self.study.get_trials(deepcopy=False)
        retried, keys = {trial.user_attrs.get("retry_of") for trial in trials}, len(self.space.axes)
        results = [self._result(trial) for trial in trials if trial.number not in retried and len(trial.params) == keys]
        sign = 1 if self.space.dev_metric in LOWER_IS_BETTER else -1
        return sorted(results, key=lambda each: (_ORDER.index(each.state), sign * each.value, each.tie_break))

    @property
    def _is_grid(self) -> bool:
        return self.options.sampler == "grid"

    def _can_draw(self, trials: list[FrozenTrial]) -> bool:
        """Whether further trials may be drawn."""
        return not self._is_grid and _number_drawn(trials) < self.options.trials

    def _description(self) -> dict[str, Any]:
        """What all processes of a search have in common."""
        axes = {axis.key: axis.text for axis in self.space.axes}
        return {"recipe": self.space.fixed, "space": axes, "grid": self._is_grid}

    def _open_study(self) -> optuna.Study:
        """The study of this space; a folder has several of them if a grid was given further values."""
        description = self._description()
        digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()
        study = optuna.create_study(
            storage=self._storage,
            study_name=digest[:16],
            direction="minimize" if self.space.dev_metric in LOWER_IS_BETTER else "maximize",
            sampler=make_sampler(self.options.sampler, self.options.trials, self.options.seed),
            pruner=make_pruner(self.options.pruner),
            load_if_exists=True,
        )
        study.set_user_attr("search", description)
        return study

    def _refuse_other_search(self) -> None:
        """Refuses a folder in which another recipe or other settings are searched; a grid may get further values."""
        now = self._description()
        for study in self._storage.get_all_studies():
            before = study.user_attrs.get("search")  # not there if a process was killed before it began
            if before is not None:
                _refuse_difference(self.space.out, before, now)

    def _enqueue(self) -> None:
        """Adds all combinations of a grid that are not there yet, and failed trials once more."""
        trials = self.study.get_trials(deepcopy=False)
        if self._is_grid:
            known = [self._fixed_params(trial) for trial in trials]
            for choice in self.space.choices():
                if choice not in known:
                    self.study.enqueue_trial(choice)
        retried = {trial.user_attrs.get("retry_of") for trial in trials}
        for trial in trials:
            if trial.state == TrialState.FAIL and trial.number not in retried:
                self.study.enqueue_trial(trial.params, user_attrs={"retry_of": trial.number})

    def _fixed_params(self, trial: FrozenTrial) -> Mapping[str, Any]:
        """The choice that a trial was made for, if it was made for one."""
        return trial.params or trial.system_attrs.get("fixed_params", {})

    def _give_back_lost(self, trial: FrozenTrial) -> bool:
        """Whether a running trial has lost its process, and waits now."""
        if self._worker.is_alive(trial.user_attrs.get("worker", "")):
            return False
        return self._storage.set_trial_state_values(trial._trial_id, TrialState.WAITING)

    def _end(self, trial: Trial, state: TrialState, value: float | None = None, **attributes: Any) -> None:
        with self._lock:
            if self._is_ours(trial):
                self._set(trial, attributes)
                self.study.tell(trial, value, state)

    def _set(self, trial: Trial, attributes: Mapping[str, Any]) -> None:
        for name, attribute in attributes.items():
            trial.set_user_attr(name, attribute)

    def _is_ours(self, trial: Trial) -> bool:
        """Whether this process still has the trial: one that was silent for too long may have lost it."""
        frozen = self._frozen(trial)
        return frozen.state == TrialState.RUNNING and frozen.user_attrs.get("worker") == self._worker.name

    def _frozen(self, trial: Trial) -> FrozenTrial:
        return self._storage.get_trial(trial._trial_id)

    def _result(self, trial: FrozenTrial) -> TrialResult:
        attributes, epochs = trial.user_attrs, trial.intermediate_values
        value = trial.value if trial.value is not None else epochs[max(epochs)] if epochs else 0.0
        return TrialResult(
            self.space.settings_of(trial.params),
            value,
            attributes.get("epochs", max(epochs, default=0)),
            attributes.get("seconds", 0.0),
            attributes.get("problem", "") if trial.state == TrialState.FAIL else "",
            _STATES[trial.state],
            trial.number,
            attributes.get("max_epochs", 0),
            attributes.get("perplexity"),
        )


def _number_drawn(trials: list[FrozenTrial]) -> int:
    return sum("retry_of" not in trial.user_attrs for trial in trials)


@contextmanager
def _readable(journal: Path) -> Iterator[None]:
    """Inside, a file that cannot be read as a journal is refused."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise RunError(
            f"{journal}: damaged ({type(error).__name__}), expected the journal of a search; move it away and start "
            "again: trained runs are found again"
        ) from error


def _refuse_difference(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuses to join a search that is another, and says in what."""
    advice = "expected the same search; choose another --out"
    key = _first_difference(before["recipe"], now["recipe"])
    if key is not None:
        old, new = (side["recipe"].get(key, "not set") for side in (before, now))
        raise RunError(f"{folder}: searched with {key} = {old}, now {new}; {advice}")
    if before["grid"] and now["grid"] and before["space"].keys() == now["space"].keys():
        return
    key = _first_difference(before["space"], now["space"])
    if key is not None:
        old, new = (side["space"].get(key, "not searched") for side in (before, now))
        raise RunError(f"{folder}: searched {key} in {old}, now in {new}; {advice}")
    if before["grid"] != now["grid"]:
        old, new = ("every combination" if side["grid"] else "drawn values" for side in (before, now))
        raise RunError(f"{folder}: a search of {old}, now of {new}; {advice}")


def _first_difference(before: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    return next((key for key in {**before, **now} if before.get(key) != now.get(key)), None)
