"""Which values a search tries next, and which trials it prunes: Optuna's samplers and pruners by their names here."""

import zlib
from collections.abc import Callable
from typing import Any, Literal

import optuna
from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial

Sampler = Literal["grid", "random", "tpe"]
Pruner = Literal["none", "median", "hyperband"]

_STARTUP_TRIALS = 4
"""Trials that end before the median pruner starts to prune."""
_MAX_RANDOM_TRIALS, _RANDOM_PART = 10, 3
"""TPE draws a third of the trials at random before it begins to learn, but at most this many."""


class SeededSampler(BaseSampler):
    """A new sampler for every trial and setting, with a seed that follows from its name.

    What is drawn for a trial is the same whichever process draws it, and two processes never draw the same numbers.
    """

    def __init__(self, make: Callable[[int], BaseSampler], seed: int) -> None:
        self._make, self._seed = make, seed

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The settings that are drawn together."""
        return self._of(trial, "").infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Values of the settings that are drawn together."""
        return self._of(trial, "").sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """The value of a setting that is drawn by itself."""
        return self._of(trial, param_name).sample_independent(study, trial, param_name, param_distribution)

    def _of(self, trial: FrozenTrial, name: str) -> BaseSampler:
        return self._make(zlib.crc32(f"{self._seed} {trial.number} {name}".encode()))


def make_sampler(name: Sampler, trials: int, seed: int) -> BaseSampler:
    """The sampler of a name; a grid draws nothing, all its trials are listed."""
    at_random = min(_MAX_RANDOM_TRIALS, 1 + trials // _RANDOM_PART)
    if name == "tpe":
        return SeededSampler(
            lambda number: TPESampler(seed=number, multivariate=True, n_startup_trials=at_random), seed
        )
    return SeededSampler(lambda number: RandomSampler(seed=number), seed)


def make_pruner(name: Pruner) -> BasePruner:
    """The pruner of a name."""
    if name == "median":
        return MedianPruner(n_startup_trials=_STARTUP_TRIALS)
    return HyperbandPruner() if name == "hyperband" else NopPruner()


def silence_optuna() -> None:
    """Keeps Optuna from logging anything but errors."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
