"""From a recipe and the facts of its data to the settings one trains with, and why each unset one has its value.

``resolve_reading`` decides how files are read, and ``resolve`` all the rest, once the data are encoded. Each setting
has a rule, which gives its value and the reason, or None where the setting does not apply. Later rules see the
settings decided by earlier ones. What is set in the recipe stays.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from antiphon.exceptions import RecipeError
from antiphon.recipe.model_sections import TransducerSection, TransformerSection
from antiphon.recipe.schema import Recipe, token_kinds
from antiphon.recipe.sections import MAX_LENGTH_EXTRA, MAX_LENGTH_RATIO, DataSection, TrainSection
from antiphon.runs.build import LENGTH_EXTRA, LENGTH_RATIO, may_copy_words, reads_source
from antiphon.torch_free.codec import PairCodec
from antiphon.torch_free.readers import Files, has_features
from antiphon.torch_free.vocab import SPECIALS
from antiphon.training.optimisation import DEFAULT_RATE

UPDATES_PER_EPOCH = 100
"""The least updates of an epoch where ``train.passes`` is unset, so that validation and checkpoints take little time in
comparison. Learning takes updates, not passes over the data: 800 pairs are seen in 25 batches."""
PATIENCE_SHARE, ANNEALED_PATIENCE_SHARE = 0.2, 0.5
"""Patience as a fraction of all epochs, and where the learning rate falls, since the best epochs are then the last."""
MIN_PATIENCE = 10
"""The least patience in epochs where ``train.patience`` is unset."""
_MIN_WARMUP, _MAX_WARMUP = 100, 1000
"""Updates of the warm-up of a transformer: at least, and at most."""
_WIDTH = 256
"""The width of a transformer that has the usual learning rate."""
_MAX_HALLUCINATED, _MIN_HALLUCINATED = 0.5, 0.05
"""Fractions of the pairs that are hallucinated: at most, and at least where any are."""
_HALLUCINATED_PAIRS = 200
"""The number of hallucinated pairs, where their fraction is between the two."""
_HIDDEN_SOURCES = 0.01
"""Fraction of the pairs in which source tokens are made unknown."""
_MANY_PAIRS = 5_000
"""From this many pairs on, dropout is lower; that of a transformer always is."""
_DROPOUT_FEW_PAIRS, _DROPOUT_MANY_PAIRS = 0.5, 0.3
_LABEL_SMOOTHING = 0.1
"""Label smoothing of a transformer."""
_TYPICAL_LENGTHS = 0.99
"""Fraction of the training pairs that decides how long outputs may be in proportion to inputs."""
_LENGTH_ROOM = 1.25
"""Outputs may be this much longer than those, where the usual limit is too low for them."""
_SHARED = 0.5
"""Part of the target vocabulary that must be in the source vocabulary as well, for copying to make sense."""


@dataclass(frozen=True)
class Facts:
    """What encoded training data are like: pairs, batches of a pass and, of pairs of texts, shared tokens and lengths.

    ``shares_tokens``: source and target have the same kind of tokens, and most target tokens are source tokens too.
    ``lengths`` are those of the sources and of the targets of all pairs.
    """

    pairs: int
    updates_per_pass: int
    shares_tokens: bool = False
    lengths: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None


@dataclass(frozen=True)
class Resolution:
    """The settings one trains with, and the reasons for those that the recipe left unset, by their keys."""

    recipe: Recipe
    reasons: Mapping[str, str] = field(default_factory=dict)

    def table(self) -> list[str]:
        """A line for each setting that was decided: its key, its value, and the reason."""
        rows = [(key, _text(_value(self.recipe, key)), reason) for key, reason in self.reasons.items()]
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)] if rows else [0, 0]
        return [f"{key:{widths[0]}}  {value:{widths[1]}}  {reason}" for key, value, reason in rows]


class Choice(NamedTuple):
    """The value of a setting, and why it was chosen."""

    value: Any
    reason: str


def resolve_reading(recipe: Recipe) -> Resolution:
    """The recipe with all that decides how its files are read."""
    return _decide(Resolution(recipe), {"data.features": _features, "data.split_hangul": _split_hangul})


def resolve(before: Resolution, facts: Facts) -> Resolution:
    """The recipe with all settings that depend on its data, and on each other."""
    return _decide(before, _RULES, facts)


def required_files(data: DataSection, name: str) -> Files:
    """The files of a setting that must be given."""
    files: Files | None = getattr(data, name)
    if files is None:
        raise RecipeError(f"data.{name}: unset, expected a file of pairs; give one with --set data.{name}=FILE")
    return files


def share_vocabulary(recipe: Recipe, codec: PairCodec) -> bool:
    """Whether source and target have the same kind of tokens and most target tokens are source tokens as well."""
    kinds = token_kinds(recipe.data)
    tokens = codec.target.vocab.tokens[len(SPECIALS) :]
    shared = sum(token in codec.source.vocab for token in tokens)
    return kinds["source"] == kinds["target"] and shared >= _SHARED * len(tokens)


def patience_of(settings: TrainSection, max_epochs: int) -> int:
    """The patience of a run of ``max_epochs`` epochs."""
    return max(MIN_PATIENCE, ceil(_patience_share(settings) * max_epochs))


def _decide(before: Resolution, rules: Mapping[str, Callable[..., Choice | None]], *facts: Facts) -> Resolution:
    """The recipe with a value for each setting that is unset and has a rule that applies."""
    recipe, reasons = before.recipe, dict(before.reasons)
    for key, rule in rules.items():
        section, name = key.split(".")
        settings = getattr(recipe, section)
        is_unset = name in type(settings).model_fields and getattr(settings, name) is None
        if is_unset and (choice := rule(recipe, *facts)) is not None:
            changed = settings.model_copy(update={name: choice.value})
            recipe, reasons[key] = recipe.model_copy(update={section: changed}), choice.reason
    return Resolution(recipe, reasons)


def _features(recipe: Recipe) -> Choice:
    data = recipe.data
    only_unpaired = data.train is None and not reads_source(recipe)
    name = "dev" if only_unpaired else "train"
    found = has_features(required_files(data, name))
    return Choice(found, f"data.{name} has {'a' if found else 'no'} third column")


def _split_hangul(recipe: Recipe) -> Choice:
    has_chars = "chars" in (recipe.data.source_tokens, recipe.data.target_tokens)
    return Choice(has_chars, "tokens are characters" if has_chars else "no tokens are characters")


def _dropout(recipe: Recipe, facts: Facts) -> Choice:
    if facts.pairs >= _MANY_PAIRS:
        return Choice(_DROPOUT_MANY_PAIRS, f"{facts.pairs:,} training pairs, at least {_MANY_PAIRS:,}")
    return Choice(_DROPOUT_FEW_PAIRS, f"{facts.pairs:,} training pairs, fewer than {_MANY_PAIRS:,}")


def _copy_words(recipe: Recipe, facts: Facts) -> Choice:
    if not may_copy_words(recipe):
        return Choice(False, "tokens are not words on both sides")
    if recipe.data.swap:
        return Choice(False, "data.swap is true")
    return Choice(facts.shares_tokens, f"{_most(facts)} target words are source words too")


def _copy_unknown(_: Recipe, facts: Facts) -> Choice:
    return Choice(facts.shares_tokens, f"{_most(facts)} target tokens are source tokens too")


def _context(recipe: Recipe, _: Facts) -> Choice:
    """All of the source where words are read from both ends; between letters it does not pay."""
    assert isinstance(recipe.model, TransducerSection)
    if recipe.model.encoder == "unidirectional":
        return Choice("none", "the encoder is unidirectional")
    if token_kinds(recipe.data)["source"] == "chars":
        return Choice("none", "letters are read")
    return Choice("attention", "the encoder is bidirectional and reads words")


def _label_smoothing(recipe: Recipe, _: Facts) -> Choice | None:
    return Choice(_LABEL_SMOOTHING, "usual for transformers") if isinstance(recipe.model, TransformerSection) else None


def _hallucination(recipe: Recipe, facts: Facts) -> Choice | None:
    """Half of 100 inflected words, a fifth of 1,000, nothing of more than 4,000."""
    if not isinstance(recipe.model, TransducerSection):
        return None
    if not recipe.model.copy_unknown:
        return Choice(0.0, "model.copy_unknown is false")
    if recipe.data.target_tokens != "chars":
        return Choice(0.0, "targets are not characters")
    share = min(_MAX_HALLUCINATED, _HALLUCINATED_PAIRS / facts.pairs)
    if share < _MIN_HALLUCINATED:
        return Choice(0.0, f"{facts.pairs:,} training pairs are enough")
    return Choice(round(share, 2), f"{facts.pairs:,} training pairs with letters in common are few")


def _hidden_sources(recipe: Recipe, facts: Facts) -> Choice | None:
    """None where a source is not read, or a transducer has copies instead: ``training/augmentation.py``."""
    if facts.lengths is None:
        return None
    model = recipe.model
    if isinstance(model, TransducerSection) and (model.copy_unknown or model.copy_words):
        return Choice(0.0, "unknown tokens are copied")
    if recipe.data.min_count > 1:
        return Choice(0.0, "data.min_count makes rare tokens unknown")
    return Choice(_HIDDEN_SOURCES, "unknown tokens are not copied")


def _length_ratio(_: Recipe, facts: Facts) -> Choice | None:
    """A ratio that suits 99 of 100 pairs, with room for longer outputs."""
    if facts.lengths is None:
        return None
    sources, targets = facts.lengths
    needed = float(np.quantile((targets - LENGTH_EXTRA) / sources, _TYPICAL_LENGTHS))
    if needed <= LENGTH_RATIO:
        return Choice(LENGTH_RATIO, f"enough for {_TYPICAL_LENGTHS:.0%} of the training targets")
    ratio = float(min(ceil(_LENGTH_ROOM * needed), MAX_LENGTH_RATIO))
    return Choice(ratio, f"{_TYPICAL_LENGTHS:.0%} of the training targets need up to {needed:.3g}")


def _length_extra(recipe: Recipe, facts: Facts) -> Choice | None:
    """What the longest targets need beyond the ratio, added to every limit."""
    if facts.lengths is None:
        return None
    (sources, targets), ratio = facts.lengths, recipe.search.max_length_ratio or LENGTH_RATIO
    left = ceil((targets - ratio * sources).max())
    if left <= LENGTH_EXTRA:
        return Choice(LENGTH_EXTRA, "enough for all training targets")
    return Choice(min(left, MAX_LENGTH_EXTRA), f"a training target has {left:,} tokens beyond the ratio")


def _passes(_: Recipe, facts: Facts) -> Choice:
    """As few passes as give an epoch enough updates."""
    batches = facts.updates_per_pass
    return Choice(
        ceil(UPDATES_PER_EPOCH / batches), f"a pass has {batches:,} updates, an epoch at least {UPDATES_PER_EPOCH}"
    )


def _max_epochs(recipe: Recipe, facts: Facts) -> Choice:
    """Epochs for ``train.max_updates`` updates, or ``train.min_passes`` passes over the pairs if those are more."""
    settings, per_pass = recipe.train, facts.updates_per_pass
    by_passes = settings.min_passes * per_pass > settings.max_updates
    updates = settings.min_passes * per_pass if by_passes else settings.max_updates
    name = "min_passes" if by_passes else "max_updates"
    reason = f"train.{name} is {getattr(settings, name):,}"
    return Choice(ceil(updates / ((settings.passes or 1) * per_pass)), reason)


def _patience(recipe: Recipe, _: Facts) -> Choice:
    settings = recipe.train
    reason = f"{_patience_share(settings):.0%} of the epochs, at least {MIN_PATIENCE}"
    return Choice(patience_of(settings, settings.max_epochs or 0), reason)


def _patience_share(settings: TrainSection) -> float:
    return PATIENCE_SHARE if settings.final_learning_rate_ratio == 1 else ANNEALED_PATIENCE_SHARE


def _learning_rate(recipe: Recipe, _: Facts) -> Choice:
    """The rate of Adam that is usual; wide transformers need a lower one, narrow ones a higher one."""
    model = recipe.model
    if not model.needs_warmup:
        return Choice(DEFAULT_RATE, "usual")
    return Choice(
        float(f"{DEFAULT_RATE * math.sqrt(_WIDTH / model.width):.3g}"), f"a transformer of width {model.width}"
    )


def _warmup(recipe: Recipe, facts: Facts) -> Choice:
    """Two epochs of a transformer within bounds, whatever the length of training."""
    if not recipe.model.needs_warmup:
        return Choice(0, "no transformer")
    updates = 2 * (recipe.train.passes or 1) * facts.updates_per_pass
    reason = f"two epochs of a transformer, from {_MIN_WARMUP} to {_MAX_WARMUP:,} updates"
    return Choice(min(_MAX_WARMUP, max(_MIN_WARMUP, updates)), reason)


_RULES: Mapping[str, Callable[[Recipe, Facts], Choice | None]] = {
    "model.dropout": _dropout,
    "model.copy_words": _copy_words,
    "model.copy_unknown": _copy_unknown,
    "model.context": _context,
    "train.label_smoothing": _label_smoothing,
    "train.hallucination": _hallucination,
    "train.hidden_sources": _hidden_sources,
    "search.max_length_ratio": _length_ratio,
    "search.max_length_extra": _length_extra,
    "train.passes": _passes,
    "train.max_epochs": _max_epochs,
    "train.patience": _patience,
    "train.learning_rate": _learning_rate,
    "train.warmup_updates": _warmup,
}
"""How each setting is decided, in this order."""


def _most(facts: Facts) -> str:
    return "most" if facts.shares_tokens else "not most"


def _value(recipe: Recipe, key: str) -> Any:
    section, name = key.split(".")
    return getattr(getattr(recipe, section), name)


def _text(value: Any) -> str:
    """A value as ``--set`` takes it."""
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
