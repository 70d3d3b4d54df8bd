"""What ``lite.json`` holds: the type and range of every setting, checked before anything else is read."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple, get_args

from antiphon.storage.manifest import MEMBERS
from antiphon.terminal import one_line
from antiphon.torch_free.codec import Normalisation
from antiphon.torch_free.readers import ColumnOrder
from antiphon.torch_free.vocab import SPECIALS

_LARGEST = 3e38
"""Larger numbers are infinite in single precision."""
_MOST = 10**7
"""Larger than any vocabulary, layer or list."""
_SIDES = ("source", "target")


class Value(NamedTuple):
    """What a value must be: in words, and as a test."""

    expected: str
    fits: Callable[[Any], bool]


Schema = Value | Mapping[str, Any]
"""A value, or a table with exactly these keys, each with a schema of its own."""


def _whole(least: int, most: int) -> Value:
    return Value(f"a whole number from {least} to {most}", lambda given: type(given) is int and least <= given <= most)


def _number(least: float, most: float) -> Value:
    is_number = (int, float)
    return Value(
        f"a number from {least:g} to {most:g}", lambda given: type(given) in is_number and least <= given <= most
    )


def _one_of(*names: str) -> Value:
    return Value(f"one of {', '.join(names)}", lambda given: isinstance(given, str) and given in names)


def _list_of(item: Value, least: int = 0, most: int = _MOST) -> Value:
    def fits(given: Any) -> bool:
        return isinstance(given, list) and least <= len(given) <= most and all(map(item.fits, given))

    return Value(f"a list of {least} to {most} values, each {item.expected}", fits)


_FLAG = Value("true or false", lambda given: isinstance(given, bool))
_TEXT = Value("text", lambda given: isinstance(given, str))
_NAME = Value("a name", lambda given: isinstance(given, str) and given.isidentifier())
_WEIGHT = _number(-1e6, 1e6)
_HYPOTHESES = _whole(1, 1000)
_TOKENS = _one_of("chars", "words", "sentencepiece")
_FILE: Schema = {"bytes": _whole(0, 2**60), "sha256": _TEXT}
_NETWORKS: Mapping[str, Mapping[str, Schema]] = {
    "rules": {},
    "steps": {},
    "transducer": {
        "copies_unknown": _FLAG,
        "ties_words": _FLAG,
        "counterparts": _list_of(_whole(-1, _MOST)),
        "transition": {
            "readout": _list_of(_number(-_LARGEST, _LARGEST)),
            "bias": _number(-_LARGEST, _LARGEST),
            "compares": _FLAG,
            "final_emit_forced": _FLAG,
        },
    },
    "ensemble": {"mean": _one_of("probabilities", "logs"), "members": _list_of(_one_of(*MEMBERS), 1, len(MEMBERS))},
    "noisy_channel": {
        "parts": _list_of(_one_of("direct", "channel", "lm"), 1, 3),
        "weights": _list_of(_WEIGHT, 4, 4),
        "reading": _one_of("last", "anywhere"),
    },
}
"""The settings of the network, by its structure."""
_SETTINGS: Mapping[str, Schema] = {
    "antiphon": _TEXT,
    "kind": _NAME,
    "predicts": _FLAG,
    "text": {
        "normalisation": {field.name: _FLAG for field in fields(Normalisation)},
        "source_tokens": _TOKENS,
        "target_tokens": _TOKENS,
        "copies_words": _FLAG,
        "reads_features": _FLAG,
        "swap": _FLAG,
        "columns": _one_of(*get_args(ColumnOrder)),
    },
    "vocab_sizes": {name: _whole(len(SPECIALS), _MOST) for name in (*_SIDES, "features")},
    "search": {
        "beam": _HYPOTHESES,
        "proposals": _HYPOTHESES,
        "direct_outputs": _whole(0, 1000),
        "threshold": _number(0, 1e6),
        "commit_margin": _number(0, 1e6),
        "max_length_ratio": _number(0, 100),
        "max_length_extra": _whole(1, 10**4),
        "length_normalisation": _number(0, 10),
        "length_bias": _number(-1000, 1000),
        "replace_unknown": _FLAG,
    },
    "batch_size": _whole(1, 10**4),
    "rule_weight": _number(0, 1),
    "weights": _one_of("float32", "int8"),
}
"""All settings but those of the network and the list of files; ranges are those of recipes."""
_GRAPHS: Mapping[str, Sequence[str]] = {"steps": ("start", "step"), "transducer": ("encode", "decode")}


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raises a ``ValueError`` that names the first setting which is missing, unknown or not what it must be."""
    network, files = settings["network"], settings["files"]
    _check({name: settings[name] for name in settings if name not in ("network", "files")}, _SETTINGS, "")
    structure: Any = network.get("structure") if isinstance(network, dict) else None
    _check(structure, _one_of(*_NETWORKS), "network.structure")
    _check(network, {"structure": _NAME, **_NETWORKS[structure]}, "network")
    _check(files, dict.fromkeys(files, _FILE), "files")
    for name in _needed_files(settings, structure):
        if name not in files:
            raise ValueError(f"files.{name} is missing")


def _needed_files(settings: Mapping[str, Any], structure: str) -> list[str]:
    """Files that a folder with these settings cannot be without."""
    with_model = [side for side in _SIDES if settings["text"][f"{side}_tokens"] == "sentencepiece"]
    return [
        *(f"{side}.vocab" for side in _SIDES),
        *(f"{side}.spm" for side in with_model),
        *(["rules.tsv"] if settings["rule_weight"] or structure == "rules" else []),
        *(f"{name}.onnx" for name in _GRAPHS.get(structure, ())),
    ]


def _check(given: Any, schema: Schema, where: str) -> None:
    """Raises a ``ValueError`` if a value does not fit its schema."""
    if isinstance(schema, Value):
        if not schema.fits(given):
            raise ValueError(f"{where} is {one_line(json.dumps(given), 40)}, not {schema.expected}")
        return
    if not isinstance(given, dict):
        raise ValueError(f"{where} is {one_line(json.dumps(given), 40)}, not a table")
    for name in {**schema, **given}:
        place = f"{where}.{one_line(name, 40)}" if where else one_line(name, 40)
        if name not in given or name not in schema:
            raise ValueError(f"{place} is {'missing' if name in schema else 'not a setting'}")
        _check(given[name], schema[name], place)
