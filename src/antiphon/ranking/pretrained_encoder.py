"""Pretrained sentence encoders on disk: a folder of ``config.json``, ``tokenizer.json`` and ``model.safetensors``.

The folder may be inside an installed package, which is never imported.
"""

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np

from antiphon.data.batch import Ids
from antiphon.data.files import read_text
from antiphon.exceptions import InputError
from antiphon.terminal import one_line

ENCODER_FILES = ("config.json", "tokenizer.json")
"""Files of an encoder that a run keeps besides its weights."""
WEIGHTS = "model.safetensors"
_SIZES = {
    "vocab_size": 10**6,
    "hidden_size": 2**13,
    "num_hidden_layers": 100,
    "num_attention_heads": 2**10,
    "intermediate_size": 2**15,
    "max_position_embeddings": 2**16,
}
"""The sizes that every encoder has, and the largest accepted value."""
_EXPECTED = f"expected a folder, or an installed package, with {', '.join(ENCODER_FILES)} and {WEIGHTS}"


def find_encoder(name: str) -> Path:
    """The folder of an encoder: the path itself, or the first such folder of the installed package of that name."""
    folders = [Path(name)] if Path(name).is_dir() else _package_folders(name)
    for folder in folders:
        for config in sorted(folder.rglob("config.json")):
            if all((config.parent / file).is_file() for file in (*ENCODER_FILES, WEIGHTS)):
                return config.parent
    raise InputError(f"{name}: no sentence encoder, {_EXPECTED}")


def read_encoder_config(path: Path) -> dict[str, Any]:
    """The sizes of the encoder in its ``config.json``; networks other than BERT are refused."""
    try:
        config = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: damaged ({error}), expected JSON") from None
    kind = config.get("model_type") if isinstance(config, dict) else None
    if kind != "bert":
        raise InputError(f"{path}: a network of type {one_line(str(kind))}, expected bert")
    _check_sizes(config, path)
    return cast(dict[str, Any], config)


def _check_sizes(config: dict[str, Any], path: Path) -> None:
    """Refuses sizes that are missing, or that no encoder has."""
    for name, most in _SIZES.items():
        size = config.get(name)
        if not isinstance(size, int) or not 1 <= size <= most:
            raise InputError(f"{path}: {name} = {one_line(repr(size))}, expected a number from 1 to {most:,}")
    if config["hidden_size"] % config["num_attention_heads"]:
        raise InputError(f"{path}: hidden_size is no multiple of num_attention_heads, expected one")
    for name in ("hidden_dropout_prob", "layer_norm_eps"):
        value = config.get(name, 0.1)
        if not isinstance(value, int | float) or not 0 <= value < 1:
            raise InputError(f"{path}: {name} = {one_line(repr(value))}, expected a number from 0 to 1")


class WordPieces:
    """Text to word-piece ids, as the encoder was trained."""

    def __init__(self, path: Path, sizes: Mapping[str, Any]) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise InputError(
                "model.sentence = pretrained: tokenizers is missing, expected antiphon[pretrained]"
            ) from None
        try:
            self._tokeniser = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise InputError(f"{path}: not to be read ({error}), expected a tokenizer.json") from None
        largest = max(self._tokeniser.get_vocab().values(), default=0)
        if largest >= sizes["vocab_size"]:
            raise InputError(f"{path}: a piece with id {largest}, expected less than vocab_size in config.json")
        self._tokeniser.no_padding()
        self._tokeniser.enable_truncation(sizes["max_position_embeddings"])

    def encode(self, text: str) -> Ids:
        """The word-piece ids of a text."""
        return np.array(self._tokeniser.encode(text).ids, np.int32)


def _package_folders(name: str) -> list[Path]:
    spec = find_spec(name) if name.isidentifier() else None
    return [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
