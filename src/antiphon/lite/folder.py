"""Folders that ``antiphon export`` writes: their format, and how they are read without executing anything.

lite.json            format version, kind, settings, and size and SHA-256 of every other file; sealed by its own digest
source.vocab         one token per line; also target.vocab, and features.vocab if there are features
source.spm           SentencePiece model, if one is used; also target.spm
rules.tsv            suffix rules, if the run has any
*.onnx               the graphs of the network
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from antiphon.exceptions import RunError
from antiphon.storage.files import (
    check_format,
    digest_file,
    digest_inside,
    open_regular,
    parse_entries,
    parse_sealed,
    render_sealed,
)
from antiphon.storage.manifest import LITE_SETTINGS, MANIFEST
from antiphon.terminal import one_line
from antiphon.torch_free.codec import NO_FEATURES, Normalisation, PairCodec, TextCodec, open_tokeniser
from antiphon.torch_free.hypothesis import BeamSettings
from antiphon.torch_free.readers import ColumnOrder
from antiphon.torch_free.vocab import SPECIALS, Vocab

FORMAT = 1
"""The format that is written; the newest that can be read."""
_MAX_BYTES, _MAX_TOKENS = 2**26, 10**7
"""Far larger than the settings, and the vocabulary, of any run."""
_SIDES = ("source", "target")
_FILES = (
    *(f"{side}.{kind}" for side in _SIDES for kind in ("vocab", "spm")),
    "features.vocab",
    "rules.tsv",
    *(f"{graph}.onnx" for graph in ("start", "step", "rows", "open", "read", "write", "cell")),
    *(f"twin_{graph}.onnx" for graph in ("start", "step", "rows")),
)
"""Files that an exported run can list."""


Value = tuple[str, Callable[[Any], bool]]
"""What a setting must be: in words, and as a test."""
Schema = Value | Mapping[str, Any]
"""A value, or a table with exactly these keys, each with a schema of its own."""


def _whole(least: int, most: int) -> Value:
    return f"a whole number from {least} to {most}", lambda given: type(given) is int and least <= given <= most


def _number(least: float, most: float) -> Value:
    expected = f"a number from {least:g} to {most:g}"
    return expected, lambda given: type(given) in (int, float) and least <= given <= most


def _one_of(*names: str) -> Value:
    return f"one of {', '.join(names)}", lambda given: isinstance(given, str) and given in names


_FLAG: Value = "true or false", lambda given: isinstance(given, bool)
_TEXT: Value = "text", lambda given: isinstance(given, str)
_NAME: Value = "a name", lambda given: isinstance(given, str) and given.isidentifier()
_TOKENS = _one_of("chars", "words", "sentencepiece")
_SETTINGS: Mapping[str, Schema] = {
    "antiphon": _TEXT,
    "format": _whole(1, FORMAT),
    "sha256": _TEXT,
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
    "vocab_sizes": {name: _whole(len(SPECIALS), _MAX_TOKENS) for name in (*_SIDES, "features")},
    "search": {
        "beam": _whole(1, 1000),
        "proposals": _whole(1, 1000),
        "direct_outputs": _whole(0, 1000),
        "threshold": _number(0, 1e6),
        "commit_margin": _number(0, 1e6),
        "max_length_ratio": _number(0, 100),
        "max_length_extra": _whole(1, 10**4),
        "length_normalisation": _number(0, 10),
        "length_bias": _number(-1000, 1000),
    },
    "batch_size": _whole(1, 10**4),
    "rule_weight": _number(0, 1),
    "weights": _one_of("float32", "int8"),
    "network": {"structure": _one_of("rules", "steps"), "copies_unknown": _FLAG},
}
"""All settings but the list of files; ranges are those of recipes."""
_FILE: Schema = {"bytes": _whole(0, 2**60), "sha256": _TEXT}


class ExportedFolder:
    """The settings and files of an exported run, each of which has been verified."""

    def __init__(self, path: Path) -> None:
        self.path, self.settings = path, read_settings(path)
        for name, expected in parse_entries(self.settings["files"]).items():
            try:
                found = digest_inside(path, name)
            except FileNotFoundError:
                raise RunError(
                    f"{path / name}: missing, expected it as in {path / LITE_SETTINGS}; export the run again"
                ) from None
            if found != expected:
                raise RunError(f"{path / name}: damaged, or changed by hand, expected the file that antiphon wrote")

    def has(self, name: str) -> bool:
        """Whether the folder holds a file."""
        return name in self.settings["files"]

    @cached_property
    def codec(self) -> PairCodec:
        """Text to ids and back."""
        text = self.settings["text"]
        steps = Normalisation(**text["normalisation"])
        source, target = (
            TextCodec(steps, open_tokeniser(text[f"{side}_tokens"], self.path / f"{side}.spm"), self._vocab(side))
            for side in _SIDES
        )
        return PairCodec(source, target, self._vocab("features"), text["copies_words"])

    def _vocab(self, name: str) -> Vocab:
        """A vocabulary; one of another size than the network was exported with is refused."""
        path, size = self.path / f"{name}.vocab", self.settings["vocab_sizes"][name]
        vocab = Vocab.load(path) if self.has(path.name) else NO_FEATURES
        if len(vocab) != size:
            raise RunError(f"{path}: {len(vocab)} tokens, expected {size}, as in {self.path / LITE_SETTINGS}")
        return vocab

    def beam_settings(self, *, beam: int | None = None, nbest: int = 1) -> BeamSettings:
        """The settings of the search; ``beam`` overrides the setting of the run."""
        overrides = {"nbest": nbest} | ({"beam": beam} if beam else {})
        return BeamSettings(**dict(self.settings["search"]) | overrides)


def read_settings(folder: Path) -> dict[str, Any]:
    """The settings of a folder; damaged ones, and those of a newer format, are refused."""
    path = folder / LITE_SETTINGS
    if not path.is_file():
        if (folder / MANIFEST).is_file():
            raise RunError(f"{folder}: a run folder, expected an exported one: antiphon export {folder} --out FOLDER")
        raise RunError(f"{folder}: no {LITE_SETTINGS} in it, expected a folder that antiphon export wrote")
    with open_regular(path) as file:
        content = file.read(_MAX_BYTES)
    try:
        settings = parse_sealed(content)
        check_format(settings["format"], FORMAT, f"{folder}: an exported run")
        for name in {*settings["files"]} - {*_FILES}:  # nothing else is ever read
            raise ValueError(f"it names {name!r}")
        _check(settings, {**_SETTINGS, "files": dict.fromkeys(settings["files"], _FILE)}, "")
        _check_presence(settings)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"{path}: damaged ({error}), expected what antiphon export wrote; export the run again"
        ) from None
    return settings


def write_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Writes the settings of a folder whose other files are complete, with their digests."""
    files = {path.name: asdict(digest_file(path)) for path in sorted(folder.iterdir())}
    text = render_sealed({"format": FORMAT, **settings, "files": files})
    (folder / LITE_SETTINGS).write_text(text, encoding="utf-8", newline="\n")


def _check(given: Any, schema: Schema, where: str) -> None:
    """Raises a ``ValueError`` that names the first setting which is missing, unknown or not what it must be."""
    if isinstance(schema, tuple):
        expected, fits = schema
        if not fits(given):
            raise ValueError(f"{where} is {one_line(json.dumps(given), 40)}, not {expected}")
        return
    if not isinstance(given, dict):
        raise ValueError(f"{where} is {one_line(json.dumps(given), 40)}, not a table")
    for name in {**schema, **given}:
        place = f"{where}.{one_line(name, 40)}" if where else one_line(name, 40)
        if name not in given or name not in schema:
            raise ValueError(f"{place} is {'missing' if name in schema else 'not a setting'}")
        _check(given[name], schema[name], place)


def _check_presence(settings: Mapping[str, Any]) -> None:
    """Refuses a folder without a file that its settings ask for."""
    is_rules = settings["network"]["structure"] == "rules"
    needed = [
        *(f"{side}.vocab" for side in _SIDES),
        *(f"{side}.spm" for side in _SIDES if settings["text"][f"{side}_tokens"] == "sentencepiece"),
        *(["rules.tsv"] if settings["rule_weight"] or is_rules else []),
        *([] if is_rules else ["start.onnx", "step.onnx"]),
        *(["twin_start.onnx", "twin_step.onnx"] if any(name.startswith("twin_") for name in settings["files"]) else []),
    ]
    for name in needed:
        if name not in settings["files"]:
            raise ValueError(f"files.{name} is missing")
