"""The length of training where a recipe leaves it unset: passes of an epoch, number of epochs, patience.

Learning takes updates, not passes over the data: 800 pairs are seen in 25 batches. An epoch has as many passes as give
it ``UPDATES_PER_EPOCH`` updates, so that validation and checkpoints take little time in comparison. A run has
``train.max_updates`` updates, or ``train.min_passes`` passes over the pairs if those are more.
"""

from dataclasses import dataclass
from math import ceil

from antiphon.recipe.schema import Recipe, TrainSection
from antiphon.terminal import count_of

UPDATES_PER_EPOCH = 100
"""The least updates of an epoch where ``train.passes`` is unset."""
PATIENCE_SHARE, ANNEALED_PATIENCE_SHARE = 0.2, 0.5
"""Patience as a fraction of all epochs where ``train.patience`` is unset, and where the learning rate falls as well,
since the best epochs are then the last."""
MIN_PATIENCE = 10
"""The least patience in epochs where ``train.patience`` is unset."""

_LAST_EPOCHS = 2
_LAST_SHARE = 0.05
"""If the best epoch is among the last two, or this last fraction of all epochs, longer training may be better."""


@dataclass(frozen=True)
class TrainingLength:
    """Passes of an epoch, number of epochs, and the epochs without a better dev metric after which training stops."""

    passes: int
    max_epochs: int
    patience: int

    @classmethod
    def of(cls, settings: TrainSection) -> "TrainingLength":
        """The length of a recipe in which it is decided."""
        assert settings.max_epochs is not None
        assert settings.patience is not None
        return cls(settings.passes or 1, settings.max_epochs, settings.patience)

    def describe(self, updates: int, pairs: int) -> str:
        """The length as text, given the updates of an epoch and the pairs of a pass."""
        passes = "each a pass" if self.passes == 1 else f"each {self.passes} passes"
        epochs = f"{count_of(self.max_epochs, 'epoch')} of {count_of(updates, 'update')}"
        return f"{epochs} ({passes} over {count_of(pairs, 'pair')}), patience {self.patience}"


def longer_than(settings: TrainSection, best_epoch: int, epochs: int) -> int | None:
    """A larger number of epochs, by half, if training ended at its last epoch while the model still improved."""
    if settings.max_epochs is None or epochs < settings.max_epochs:
        return None
    is_among_last = epochs - best_epoch < max(_LAST_EPOCHS, _LAST_SHARE * epochs)
    return ceil(1.5 * epochs) if is_among_last else None


def with_length_defaults(recipe: Recipe, updates_per_pass: int) -> Recipe:
    """The recipe with defaults for passes, epochs and patience."""
    settings = recipe.train
    passes = settings.passes or ceil(UPDATES_PER_EPOCH / updates_per_pass)
    max_epochs = settings.max_epochs or _epochs(settings, updates_per_pass, passes)
    patience = settings.patience or default_patience(settings, max_epochs)
    decided = settings.model_copy(update={"passes": passes, "max_epochs": max_epochs, "patience": patience})
    return recipe.model_copy(update={"train": decided})


def default_patience(settings: TrainSection, max_epochs: int) -> int:
    """The patience of a run of ``max_epochs`` epochs."""
    share = PATIENCE_SHARE if settings.final_learning_rate_ratio == 1 else ANNEALED_PATIENCE_SHARE
    return max(MIN_PATIENCE, ceil(share * max_epochs))


def _epochs(settings: TrainSection, updates_per_pass: int, passes: int) -> int:
    """The number of epochs for the least updates and passes of a run."""
    updates = max(settings.max_updates, settings.min_passes * updates_per_pass)
    return ceil(updates / (passes * updates_per_pass))
