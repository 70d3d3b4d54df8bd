"""Pictures of a search: how its best dev metric came about, and which settings matter for it."""

import math
import warnings

from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState

from antiphon.metrics.output_metrics import LOWER_IS_BETTER
from antiphon.report.plots import optional_picture, plot_bars, plot_search
from antiphon.settings_search.shared_search import SettingsSearch
from antiphon.terminal import Say

_BETTER_PART = 0.5
"""Fraction of the trials that count as good; Optuna's default, a tenth, is too few trials in a small search."""
_NOTHING_KNOWN = ".*importances will be equal"
"""How Optuna warns of shares that say nothing, as a regular expression."""


def draw_search(search: SettingsSearch, say: Say) -> None:
    """Writes ``history.png`` and, if enough is known, ``importance.png``; ``say`` is told of a missing library."""
    history, importance = (search.space.out / f"{name}.png" for name in ("history", "importance"))
    metric = search.space.dev_metric
    with optional_picture(history, say):
        ended = _in_order_of_ending(search)
        points = [(float(trial.value or 0.0), trial.state == TrialState.PRUNED) for trial in ended]
        plot_search(points, metric, history, lower_is_better=metric in LOWER_IS_BETTER)
        shares = importances(search)
        if shares:
            plot_bars(shares, f"importance for dev {metric.replace('_', ' ')}", importance)


def importances(search: SettingsSearch) -> dict[str, float]:
    """The share of every setting in what sets the better half of the trials apart, by PED-ANOVA.

    Empty if too few trials are complete, or too many are equally good, to tell settings apart.
    """
    trials = search.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    searched = {key for key in search.space.distributions if len({trial.params[key] for trial in trials}) > 1}
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


def _in_order_of_ending(search: SettingsSearch) -> list[FrozenTrial]:
    """The trials that are complete or pruned, the first to end first."""
    ended = search.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    return sorted(ended, key=lambda trial: (trial.datetime_complete is None, trial.datetime_complete, trial.number))
