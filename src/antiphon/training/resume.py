"""Which settings a resumed run has: those of its start, or another length of training."""

from pathlib import Path
from typing import Any

from antiphon.exceptions import RecipeError, RunError
from antiphon.recipe.kinds import KINDS
from antiphon.recipe.recipe_paths import with_moved_paths
from antiphon.recipe.schema import Recipe, TrainSection
from antiphon.runs.run_folder import RunFolder
from antiphon.terminal import Say, count_of
from antiphon.training.optimisation import TrainingLength
from antiphon.training.resolution import patience_of
from antiphon.training.time_limit import FITTED

_RAISED = ("max_updates", "min_passes")
"""Settings that may be raised when a run is resumed; ``max_epochs`` may also be lowered."""


def stored_recipe(run: RunFolder, asked: Recipe) -> Recipe:
    """The recipe of a run, with the paths that are asked for where it or its data were moved."""
    return with_moved_paths(run.recipe(), asked)


def settings_to_resume(stored: Recipe, asked: Recipe, out: Path) -> Recipe:
    """The settings of a run, with another length if asked for; other changes are refused by name.

    What is unset now, or was fitted to the same ``train.minutes``, is as it was when the run started. Epochs and
    patience that follow from a new length stay unset.
    """
    before, now = stored.model_dump(mode="json"), asked.model_dump(mode="json")
    fitted = FITTED if asked.train.minutes is not None and asked.train.minutes == stored.train.minutes else ()
    if KINDS[stored.model.kind].task is not None and not fitted:
        before["train"] |= _other_length(stored.train, asked.train)
    for section, values in before.items():
        for name, value in values.items():
            wanted = now[section].get(name)
            if wanted is not None and wanted != value and name not in fitted:
                raise RecipeError(
                    f"{out}: {section}.{name} is {value!r} in the run, expected the same but {wanted!r} was asked for; "
                    "only train.max_epochs may change, and train.max_updates be higher; give the same settings, or use "
                    f"{out / 'recipe.toml'} as the recipe, which has all settings of the run"
                )
    return Recipe.model_validate(before)


def is_shorter(recipe: Recipe, stored: Recipe) -> bool:
    """Whether a recipe asks for fewer epochs than a run has in its own."""
    wanted, had = recipe.train.max_epochs, stored.train.max_epochs
    return wanted is not None and had is not None and wanted < had


def change_length(run: RunFolder, stored: Recipe, recipe: Recipe, say: Say) -> None:
    """Gives a run another number of epochs; it counts as untrained until they are done."""
    with run.changed(remove=("metrics.json",)) as new:
        new.save_recipe(recipe)
    if is_shorter(recipe, stored):
        say(f"train.max_epochs: {recipe.train.max_epochs} instead of the {stored.train.max_epochs} of the run")
    elif recipe.train.final_learning_rate_ratio != 1:
        say("train.final_learning_rate_ratio: the learning rate now falls over all epochs, old and new")


def refuse_fewer_updates(stored: Recipe, longer: Recipe, out: Path) -> None:
    """Refuses a length in updates that makes fewer epochs than the run has."""
    before, now = (TrainingLength.of(recipe.train).max_epochs for recipe in (stored, longer))
    if now < before:
        raise RecipeError(
            f"{out}: train.max_updates = {longer.train.max_updates} makes {count_of(now, 'epoch')}, expected more "
            f"than the {before} of the run; raise it or train.max_epochs"
        )


def refuse_stopped(run: RunFolder) -> None:
    """Refuses more epochs for a run that stopped before its last epoch."""
    if run.metrics() and not run.checkpoint.exists():
        raise RunError(
            f"{run.path}: training ended before train.max_epochs, so more epochs would change nothing; "
            "start again with --force, or choose another --out"
        )


def _other_length(stored: TrainSection, asked: TrainSection) -> dict[str, Any]:
    """The settings of a length that differ from those of a run; those that follow from them are unset.

    ``max_epochs`` has precedence, as everywhere: without it, more updates or passes decide the number of epochs again.
    """
    changed = {name: getattr(asked, name) for name in _RAISED if _is_higher(asked, stored, name)}
    if asked.max_epochs not in (None, stored.max_epochs):
        changed["max_epochs"] = asked.max_epochs
    if not changed:
        return {}
    if asked.max_epochs is None:
        changed["max_epochs"] = None
    if asked.patience is None and stored.patience == patience_of(stored, stored.max_epochs or 0):
        changed["patience"] = None
    return changed


def _is_higher(asked: TrainSection, stored: TrainSection, name: str) -> bool:
    wanted, had = getattr(asked, name), getattr(stored, name)
    return wanted is not None and had is not None and wanted > had
