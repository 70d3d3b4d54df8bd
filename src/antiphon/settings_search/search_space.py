"""What a search tries: a list of values or a range for every setting, and the recipe of each choice.

``train.learning_rate=0.01,0.1`` is a list; ``model.hidden_size=64..512``, ``model.dropout=0.1..0.5:step=0.1`` and
``train.learning_rate=1e-4..1e-2:log`` are ranges, of whole numbers if both ends are.
"""

import re
import tomllib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import Trial

from antiphon.exceptions import RecipeError
from antiphon.recipe.recipe_file import load_recipe
from antiphon.recipe.schema import Recipe

Distribution = CategoricalDistribution | FloatDistribution | IntDistribution

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?::(log)|:step=({_NUMBER}))?")
_EXAMPLES = "section.key=value,value..., such as train.learning_rate=0.01,0.1, or a range such as 1e-4..1e-2:log"


@dataclass(frozen=True)
class Axis:
    """What is tried for one setting: ``text`` is what was given for it, a list or a range."""

    key: str
    text: str
    distribution: Distribution

    @property
    def is_range(self) -> bool:
        """Whether the values have no list."""
        return not isinstance(self.distribution, CategoricalDistribution)

    @property
    def ends(self) -> tuple[Any, ...]:
        """The values of a list, or both ends of a range: what can be checked before anything is drawn."""
        if isinstance(self.distribution, CategoricalDistribution):
            return self.distribution.choices
        return self.distribution.low, self.distribution.high

    def suggest(self, trial: Trial) -> None:
        """Gives a trial the value that its sampler suggests."""
        tried = self.distribution
        if isinstance(tried, CategoricalDistribution):
            trial.suggest_categorical(self.key, tried.choices)
        elif isinstance(tried, IntDistribution):
            trial.suggest_int(self.key, tried.low, tried.high, step=tried.step, log=tried.log)
        else:
            trial.suggest_float(self.key, tried.low, tried.high, step=tried.step, log=tried.log)


@dataclass(frozen=True)
class SearchSpace:
    """A recipe with ``settings`` on top, and what is tried for further settings, each in a run folder in ``out``."""

    path: Path
    settings: tuple[str, ...]
    axes: tuple[Axis, ...]
    out: Path

    @cached_property
    def distributions(self) -> dict[str, Distribution]:
        """The distribution of every key."""
        return {axis.key: axis.distribution for axis in self.axes}

    @cached_property
    def fixed(self) -> dict[str, str]:
        """Everything that is the same for all choices, by key: what the recipe and the settings say."""
        table = tomllib.loads(self.path.read_text(encoding="utf-8"))
        sections = {name: values for name, values in table.items() if isinstance(values, dict)}
        said = {f"{name}.{key}": str(value) for name, values in sections.items() for key, value in values.items()}
        return said | {key.strip(): value.strip() for key, _, value in (each.partition("=") for each in self.settings)}

    @cached_property
    def dev_metric(self) -> str:
        """The metric that choices are compared by."""
        return self.recipe(self.settings_of(next(self.choices()))).train.dev_metric

    def choices(self) -> Iterator[dict[str, Any]]:
        """Every combination of the values of lists and the ends of ranges."""
        for values in product(*(axis.ends for axis in self.axes)):
            yield dict(zip(self.distributions, values, strict=True))

    def settings_of(self, choice: Mapping[str, Any]) -> tuple[str, ...]:
        """A choice as settings, such as ``train.seed=7``."""
        return tuple(f"{key}={_as_text(choice[key])}" for key in self.distributions)

    def recipe(self, settings: Sequence[str]) -> Recipe:
        """The recipe of a choice; values that make no recipe together are an error."""
        return load_recipe(self.path, [*self.settings, *settings], grid=self.distributions)

    def folder(self, settings: Sequence[str]) -> Path:
        """The run folder of a choice."""
        return self.out / _folder_name(settings)

    def check(self, *, every_combination: bool) -> None:
        """Refuses values that no recipe can have, and values of several metrics, which cannot be compared."""
        choices = self.choices() if every_combination else self._one_by_one()
        metrics = {self.recipe(self.settings_of(choice)).train.dev_metric for choice in choices}
        if len(metrics) > 1:
            raise RecipeError(
                "--grid train.dev_metric: values of several metrics cannot be compared, expected one metric"
            )

    def _one_by_one(self) -> Iterator[dict[str, Any]]:
        """Choices in which every value occurs, each beside the first values of all other axes."""
        first = next(self.choices())
        for axis in self.axes:
            for value in axis.ends:
                yield first | {axis.key: value}


def parse_space(path: Path, settings: Sequence[str], grid: Sequence[str], out: Path) -> SearchSpace:
    """The space of ``grid``, each entry of which is a key with a list or a range."""
    axes = tuple(_parse_axis(each) for each in grid)
    keys = [axis.key for axis in axes]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise RecipeError(f"--grid {twice}: given twice, expected one list of values or one range for a setting")
    return SearchSpace(path, tuple(settings), axes, out)


def _parse_axis(given: str) -> Axis:
    key, _, text = (part.strip() for part in given.partition("="))
    if "." not in key or not text:
        raise RecipeError(f"--grid {given}: expected {_EXAMPLES}")
    found = _RANGE.fullmatch(text)
    if found is not None:
        return Axis(key, text, _range(given, *found.groups()))
    values = tuple(dict.fromkeys(value.strip() for value in text.split(",")))
    return Axis(key, ",".join(values), CategoricalDistribution(values))


def _range(given: str, low: str, high: str, log: str | None, step: str | None) -> Distribution:
    """The distribution of a range, whose parts are given as text."""
    try:
        if all(re.fullmatch(r"[-+]?\d+", each) for each in (low, high, step or "1")):
            return IntDistribution(int(low), int(high), log=bool(log), step=int(step or 1))
        return FloatDistribution(float(low), float(high), log=bool(log), step=float(step) if step else None)
    except ValueError as error:
        raise RecipeError(f"--grid {given}: not a range ({str(error).rstrip('.')}), expected {_EXAMPLES}") from None


def _as_text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _folder_name(settings: Sequence[str]) -> str:
    """The settings as a file name; if a character had to be replaced, a number is added to keep names unique."""
    name = ",".join(settings)
    safe = re.sub(r"[^\w.,=+-]", "_", name)
    return safe if safe == name else f"{safe}-{zlib.crc32(name.encode()):08x}"
