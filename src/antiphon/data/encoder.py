"""Pretrained sentence encoders on disk: a folder of ``config.json``, ``tokenizer.json`` and ``model.safetensors``.

The folder may lie inside an installed package, which is looked into but never imported.
"""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from antiphon.data.batch import Ids
from antiphon.errors import InputError

ENCODER_FILES = ("config.json", "tokenizer.json")
"""What a run keeps of an encoder besides its weights."""
WEIGHTS = "model.safetensors"
_EXPECTED = f"expected a folder, or an installed package, with {', '.join(ENCODER_FILES)} and {WEIGHTS}"


def find_encoder(name: str) -> Path:
    """The folder of an encoder: the path itself, or the first such folder of the installed package of that name."""
    folders = [Path(name)] if Path(name).is_dir() else _package_folders(name)
    for folder in folders:
        for config in sorted(folder.rglob("config.json")):
            if all((config.parent / file).is_file() for file in (*ENCODER_FILES, WEIGHTS)):
                return config.parent
    raise InputError(f"{name}: no sentence encoder, {_EXPECTED}")


def read_encoder_config(folder: Path) -> dict[str, Any]:
    """The sizes of the encoder; other networks than BERT are refused."""
    path = folder / "config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: damaged ({error}), expected JSON") from None
    if config.get("model_type") != "bert":
        raise InputError(f"{path}: a network of type {config.get('model_type')}, expected bert")
    return config


class WordPieces:
    """Text to the numbers of its word pieces, as the encoder was trained to read them."""

    def __init__(self, folder: Path, max_length: int) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise InputError(
                "model.sentence = pretrained: tokenizers is missing, expected antiphon[pretrained]"
            ) from None
        path = folder / "tokenizer.json"
        try:
            self._tokeniser = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise InputError(f"{path}: not to be read ({error}), expected a tokenizer.json") from None
        self._tokeniser.no_padding()
        self._tokeniser.enable_truncation(max_length)

    def encode(self, text: str) -> Ids:
        """The numbers of a text's pieces."""
        return np.array(self._tokeniser.encode(text).ids, np.int32)


def _package_folders(name: str) -> list[Path]:
    spec = find_spec(name) if name.isidentifier() else None
    return [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
