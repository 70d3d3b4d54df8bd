"""What a search has found: its trials from best to worst, their table, the best recipe, and two pictures."""

import csv
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState

from antiphon.exceptions import RunError
from antiphon.metrics.output_metrics import LOWER_IS_BETTER
from antiphon.recipe.recipe_file import save_recipe
from antiphon.report.plots import optional_picture, plot_bars, plot_search
from antiphon.settings_search.search import SettingsSearch, is_lost
from antiphon.settings_search.search_space import SearchSpace
from antiphon.storage.atomic import atomic_replacement
from antiphon.terminal import Say

State = Literal["complete", "pruned", "failed", "running", "waiting"]
_STATES: dict[TrialState, State] = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
}
_BETTER_PART = 0.5
"""Fraction of the trials that count as good; Optuna's default, a tenth, is too few trials in a small search."""
_NOTHING_KNOWN = ".*importances will be equal"
"""How Optuna warns of shares that say nothing, as a regular expression."""


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


def draw_search(search: SettingsSearch, say: Say) -> None:
    """Writes ``history.png`` and, if enough is known, ``importance.png``; ``say`` is told of a missing library."""
    history, importance = (search.space.out / f"{name}.png" for name in ("history", "importance"))
    metric = search.space.dev_metric
    with optional_picture(history, say):
        ended = search.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
        ended.sort(key=lambda trial: (trial.datetime_complete is None, trial.datetime_complete, trial.number))
        points = [(trial.value or 0.0, trial.state == TrialState.PRUNED) for trial in ended]
        plot_search(points, metric, history, lower_is_better=metric in LOWER_IS_BETTER)
        shares = importances(search)
        if shares:
            plot_bars(shares, f"importance for dev {metric.replace('_', ' ')}", importance)


def importances(search: SettingsSearch) -> dict[str, float]:
    """The share of every setting in what sets the better half of the trials apart, by PED-ANOVA.

    Empty if too few trials are complete, or too many are equally good, to tell settings apart.
    """
    trials = search.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    searched = {axis.key for axis in search.space.axes if len({trial.params[axis.key] for trial in trials}) > 1}
    if not searched or len({trial.value for trial in trials}) < 2:
        return {}
    evaluator = PedAnovaImportanceEvaluator(target_quantile=_BETTER_PART)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=_NOTHING_KNOWN)
        try:
            shares = get_param_importances(search.study, evaluator=evaluator, params=sorted(searched))
        except UserWarning:
            return {}
    return shares if all(math.isfinite(share) for share in shares.values()) else {}
