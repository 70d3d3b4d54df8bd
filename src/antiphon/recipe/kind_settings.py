"""Which settings each kind of model has: others are refused by name, or dropped where the kind was changed."""

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any

from antiphon.exceptions import RecipeError

_RECURRENT = ("hidden_size", "embedding_size", "layers", "forget_bias", "dropout")
_TRANSDUCER = ("encoder", "transition", "final_emit", "tie", "context", *_RECURRENT)
MODEL_SETTINGS: dict[str, tuple[str, ...]] = {
    "transducer": _TRANSDUCER,
    "encoder_decoder": _RECURRENT,
    "attention": _RECURRENT,
    "language_model": _RECURRENT,
    "suffix_rule": (),
    "noisy_channel": _TRANSDUCER,  # the settings of its direct model
    "ensemble": (),  # its members have their own settings settings
    "matcher": (
        *("sentence", "overlap", "overlap_l2", "shared", "frozen"),
        *("hidden_size", "layers", "forget_bias", "dropout"),
    ),
    "overlap": ("baseline",),
}
"""The settings of section ``model`` for each kind, besides ``kind`` itself."""

_OF_PAIRS = tuple(kind for kind in MODEL_SETTINGS if kind not in ("matcher", "overlap"))
_OF_BATCHES = tuple(kind for kind in _OF_PAIRS if kind != "suffix_rule")
DATA_SETTINGS: dict[str, tuple[str, ...]] = {
    "unpaired": ("language_model",),
    **dict.fromkeys(("vectors", "more_words", "encoder"), ("matcher",)),
    **dict.fromkeys(("vocab_from", "max_source_length", "max_target_length", "max_cells"), _OF_BATCHES),
    **dict.fromkeys(("swap", "features", "source_tokens", "target_tokens", "min_count"), _OF_PAIRS),
    **dict.fromkeys(("source_sentencepiece", "target_sentencepiece", "sentencepiece_size"), _OF_PAIRS),
}
"""The kinds that have a setting of section ``data``, for settings that not all kinds have."""

Key = tuple[str, str]
"""A section and a name in it."""


def drop_unused(table: Mapping[str, Any], changes: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A recipe table without the settings that the kind set in ``changes`` does not have, and the keys dropped.

    If the kind does not change, everything stays, valid or not.
    """
    kind_in_file = _kind_of(table, "transducer")
    kind = _kind_of(changes, kind_in_file)
    unused = unused_settings(kind, table) if kind != kind_in_file else []
    return without(table, unused), [f"{section}.{name}" for section, name in unused]


def unused_settings(kind: object, table: Mapping[str, Any]) -> list[Key]:
    """The keys of a nested table that a kind does not have; empty for an unknown kind."""
    if not isinstance(kind, str) or kind not in MODEL_SETTINGS:
        return []
    return [
        (section, name)
        for section in ("model", "data")
        if isinstance(table.get(section), Mapping)
        for name in table[section]
        if not _has(kind, section, name)
    ]


def without(table: Mapping[str, Any], keys: Iterable[Key]) -> dict[str, Any]:
    """A nested table without some of its keys."""
    left = {section: dict(values) if isinstance(values, Mapping) else values for section, values in table.items()}
    for section, name in keys:
        del left[section][name]
    return left


def changed_settings(table: Mapping[str, Any], recipe: object, default: object) -> dict[str, Any]:
    """A nested table without the keys that have their default: recipes of run folders may contain all of them."""
    values = (
        (key, attrgetter(".".join(key))) for key in ((section, name) for section in table for name in table[section])
    )
    return without(table, [key for key, value in values if value(recipe) == value(default)])


def refuse_unused(kind: str, table: Mapping[str, Any], where: str) -> None:
    """Refuses keys of a nested table that a kind does not have, by name; ``where`` is their origin."""
    problems = [
        f"{where}: {section}.{name}: kind {kind} has no such setting; {_hint(kind, section, name)}"
        for section, name in unused_settings(kind, table)
    ]
    if problems:
        raise RecipeError("\n".join(problems))


def _kind_of(table: Mapping[str, Any], default: object) -> object:
    """The kind named in a nested table, known or not."""
    model = table.get("model")
    return model.get("kind", default) if isinstance(model, Mapping) else default


def _has(kind: str, section: str, name: str) -> bool:
    """Whether a kind has a setting; true for unknown settings, which are refused elsewhere."""
    if section == "data":
        return kind in DATA_SETTINGS.get(name, MODEL_SETTINGS)
    return name in MODEL_SETTINGS[kind] or not any(name in names for names in MODEL_SETTINGS.values())


def _hint(kind: str, section: str, name: str) -> str:
    if section == "data":
        return f"it belongs to {', '.join(DATA_SETTINGS[name])}"
    return f"it has {', '.join(MODEL_SETTINGS[kind]) or 'none in the section model'}"
