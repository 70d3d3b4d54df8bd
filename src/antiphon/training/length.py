"""How long training is: what an epoch is, how many there are, and when they stop, where a recipe leaves it open.

Learning takes updates, not passes over the data: 800 pairs are seen in 25 batches. An epoch has as many passes as give
it ``UPDATES_PER_EPOCH`` updates, so that validation and checkpoints cost little beside it. A run has
``train.max_updates`` updates, or ``train.min_passes`` passes over the pairs if those are more.
"""

from dataclasses import dataclass
from math import ceil

from antiphon.recipe.schema import Recipe, TrainSection
from antiphon.terminal import count_of

UPDATES_PER_EPOCH = 100
"""Updates of an epoch at least, where ``train.passes`` is unset."""
PATIENCE_SHARE, ANNEALED_PATIENCE_SHARE = 0.2, 0.5
"""Part of all epochs that may pass without a better dev metric, where ``train.patience`` is unset; more where the
learning rate falls, since the best epochs are then the last, ..."""
LEAST_PATIENCE = 10
"""... and epochs that may in any case."""

_LAST_EPOCHS = 2
_LAST_SHARE = 0.05
"""Of all epochs: a best one among these last, or among the last two, says that more would be better still."""


@dataclass(frozen=True)
class Length:
    """The length of a run in epochs of several passes, and the epochs without a better dev metric that end it."""

    passes: int
    max_epochs: int
    patience: int

    @classmethod
    def of(cls, settings: TrainSection) -> "Length":
        """The length of a run whose recipe leaves nothing open any more."""
        assert settings.max_epochs is not None
        assert settings.patience is not None
        return cls(settings.passes or 1, settings.max_epochs, settings.patience)

    def describe(self, updates: int, pairs: int) -> str:
        """The length for people; an epoch has so many updates, a pass so many pairs."""
        passes = "each a pass" if self.passes == 1 else f"each {self.passes} passes"
        epochs = f"{count_of(self.max_epochs, 'epoch')} of {count_of(updates, 'update')}"
        return f"{epochs} ({passes} over {count_of(pairs, 'pair')}), patience {self.patience}"


def longer_than(settings: TrainSection, best_epoch: int, epochs: int) -> int | None:
    """Epochs to go on to, half as many again, if training ended at its last epoch while the model still improved."""
    if settings.max_epochs is None or epochs < settings.max_epochs:
        return None
    is_among_last = epochs - best_epoch < max(_LAST_EPOCHS, _LAST_SHARE * epochs)
    return ceil(1.5 * epochs) if is_among_last else None


def settle_length(recipe: Recipe, updates_per_pass: int) -> Recipe:
    """The recipe with passes, epochs and patience decided, where it leaves them open."""
    settings = recipe.train
    passes = settings.passes or ceil(UPDATES_PER_EPOCH / updates_per_pass)
    max_epochs = settings.max_epochs or _epochs(settings, updates_per_pass, passes)
    patience = settings.patience or default_patience(settings, max_epochs)
    settled = settings.model_copy(update={"passes": passes, "max_epochs": max_epochs, "patience": patience})
    return recipe.model_copy(update={"train": settled})


def default_patience(settings: TrainSection, max_epochs: int) -> int:
    """The patience of a run of so many epochs."""
    share = PATIENCE_SHARE if settings.final_learning_rate_ratio == 1 else ANNEALED_PATIENCE_SHARE
    return max(LEAST_PATIENCE, ceil(share * max_epochs))


def _epochs(settings: TrainSection, updates_per_pass: int, passes: int) -> int:
    """Whole epochs that hold the updates, and the passes, that a run has at least."""
    updates = max(settings.max_updates, settings.min_passes * updates_per_pass)
    return ceil(updates / (passes * updates_per_pass))
