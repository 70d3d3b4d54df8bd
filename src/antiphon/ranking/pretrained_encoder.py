"""Pretrained encoders on disk, read by ``transformers``: ``config.json``, safetensors weights and a tokeniser.

The folder may lie inside an installed package, which is searched but never imported. Nothing is downloaded, no code of
the folder is executed, and weights are never unpickled. ``transformers`` is imported only here, when it is needed.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, cast, get_args

import numpy as np
import torch
from torch import nn

from antiphon.exceptions import InputError, how_to_install
from antiphon.ranking.sentence_models import Pooling
from antiphon.terminal import one_line
from antiphon.torch_free.readers import read_text
from antiphon.torch_free.vocab import Ids

_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
_TOKENISERS = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")
_LOCAL = {"local_files_only": True, "trust_remote_code": False}
_LARGEST, _MAX_LAYERS, _MAX_WIDTH = 2**20, 100, 2**13
"""The largest number in a ``config.json``, and the most layers and units, that are accepted."""
_POSITIONS_AFTER_PADDING = ("roberta", "xlm-roberta", "camembert", "mpnet")
"""Types of networks whose first position comes after the id of padding."""
_DEFAULT_LENGTH = 512
_EXPECTED = "expected a folder, or an installed package, with config.json, model.safetensors and tokenizer.json"


def find_encoder(name: str) -> Path:
    """The folder of an encoder: the path itself, or the first such folder of the installed package of that name."""
    folders = [Path(name)] if Path(name).is_dir() else _package_folders(name)
    for folder in folders:
        for config in sorted(folder.rglob("config.json")):
            if all(any((config.parent / file).is_file() for file in files) for files in (_WEIGHTS, _TOKENISERS)):
                return config.parent
    raise InputError(f"{name}: no sentence encoder, {_EXPECTED}; name another with --set model.pretrained=FOLDER")


def read_encoder_config(path: Path) -> Any:
    """The configuration in a ``config.json``, of a type that ``transformers`` knows and of sizes that are possible."""
    table = _read_json(path)
    for name, value in table.items() if isinstance(table, dict) else ():
        if isinstance(value, int) and abs(value) > _LARGEST:
            raise InputError(f"{path}: {one_line(name)} = {one_line(repr(value))}, expected at most {_LARGEST:,}")
    with _library_errors(path, "expected the configuration of an encoder"):
        config = _transformers().AutoConfig.from_pretrained(path.parent, **_LOCAL)
        layers, width = config.num_hidden_layers, config.hidden_size
    if config.is_encoder_decoder:
        raise InputError(f"{path}: an encoder with a decoder, expected an encoder alone")
    for name, size, most in (("layers", layers, _MAX_LAYERS), ("hidden units", width, _MAX_WIDTH)):
        if not isinstance(size, int) or not 1 <= size <= most:
            raise InputError(f"{path}: {one_line(repr(size))} {name}, expected 1 to {most:,}")
    return config


def new_encoder(path: Path) -> nn.Module:
    """An encoder with random weights, as a ``config.json`` describes it."""
    config = read_encoder_config(path)
    with _library_errors(path, "expected the configuration of an encoder"):
        return _without_pooler(
            _transformers().AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False)
        )


def load_published(folder: Path) -> nn.Module:
    """The encoder of a folder with its weights; all of them must be there and finite."""
    read_encoder_config(folder / "config.json")
    with _library_errors(folder, "expected the safetensors weights of its config.json"):
        model, info = _transformers().AutoModel.from_pretrained(
            folder, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **_LOCAL
        )
    missing = sorted(name for name in info["missing_keys"] if not name.startswith("pooler."))
    if missing:
        raise InputError(f"{folder}: no weights for {missing[0]}, expected all weights of its config.json")
    for name, weight in model.named_parameters():
        if not torch.isfinite(weight).all():
            raise InputError(f"{folder}: {name} has NaN or infinite values, expected finite weights")
    return _without_pooler(model)


def read_pooling(folder: Path) -> Pooling:
    """How sentence-transformers pools the states of the folder's encoder; the mean where the folder does not say."""
    for root in (folder, folder.parent):
        modules = _read_json(root / "modules.json") if (root / "modules.json").is_file() else []
        for module in modules if isinstance(modules, list) else ():
            kind = str(module.get("type")).rpartition(".")[2] if isinstance(module, dict) else ""
            if kind not in ("Transformer", "Pooling", "Normalize"):
                raise InputError(
                    f"{root / 'modules.json'}: a module of type {one_line(kind)!r}, expected Transformer, Pooling and "
                    "Normalize alone"
                )
            if kind == "Pooling":
                return _pooling_in(root / Path(str(module.get("path"))).name / "config.json")
        if (root / "1_Pooling" / "config.json").is_file():
            return _pooling_in(root / "1_Pooling" / "config.json")
    return "mean"


def check_pooling(name: Any, path: Path) -> Pooling:
    """A pooling by its name."""
    if name not in get_args(Pooling):
        raise InputError(f"{path}: pooling {one_line(str(name))}, expected {' or '.join(get_args(Pooling))}")
    return cast(Pooling, name)


def save_tokeniser(folder: Path, path: Path) -> None:
    """Writes the encoder's tokeniser as one ``tokenizer.json``; tokenisers of other formats are converted."""
    if (folder / "tokenizer.json").is_file():
        path.write_bytes((folder / "tokenizer.json").read_bytes())
        return
    with _library_errors(folder, "expected a tokeniser that can be written as tokenizer.json"):
        _transformers().AutoTokenizer.from_pretrained(folder, **_LOCAL).backend_tokenizer.save(str(path))


class WordPieces:
    """Text to the ids of word pieces, as the encoder was trained to read them; one that is too long is cut."""

    def __init__(self, path: Path, config: Any) -> None:
        from tokenizers import Tokenizer

        with _library_errors(path, "expected a tokenizer.json"):
            self._tokeniser = Tokenizer.from_file(str(path))
        largest = max(self._tokeniser.get_vocab().values(), default=0)
        if largest >= config.vocab_size:
            raise InputError(f"{path}: a piece of id {largest}, expected less than vocab_size in config.json")
        self._tokeniser.no_padding()
        self._tokeniser.enable_truncation(_max_length(config))

    def encode(self, text: str) -> Ids:
        """The ids of a text's pieces."""
        return np.array(self._tokeniser.encode(text).ids, np.int32)


def _max_length(config: Any) -> int:
    """How many pieces an encoder can read."""
    positions = getattr(config, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions < 1:
        return _DEFAULT_LENGTH
    before = (config.pad_token_id or 0) + 1 if config.model_type in _POSITIONS_AFTER_PADDING else 0
    return max(1, positions - before)


def _pooling_in(path: Path) -> Pooling:
    """The one mode that a configuration of sentence-transformers turns on."""
    table = _read_json(path)
    names = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max"}
    table = table if isinstance(table, dict) else {}
    modes = [name.removeprefix("pooling_mode_") for name in table if name.startswith("pooling_mode_") and table[name]]
    named = table.get("pooling_mode")
    chosen = [named] if isinstance(named, str) else [names.get(mode, mode) for mode in modes]
    return check_pooling(" + ".join(chosen) or "mean", path)


def _without_pooler(model: nn.Module) -> nn.Module:
    """The model without the layer over its first state that some have, which sentence vectors do not use."""
    if isinstance(getattr(model, "pooler", None), nn.Module):
        cast(Any, model).pooler = None
    return model


def _read_json(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: damaged ({one_line(str(error))}), expected JSON") from None


def _transformers() -> ModuleType:
    """The library, imported when first needed: it takes seconds."""
    try:
        import transformers
    except ImportError:
        raise InputError(
            f"model.sentence = pretrained: transformers is missing, install it: {how_to_install('pretrained')}"
        ) from None
    return cast(ModuleType, transformers)


@contextmanager
def _library_errors(path: Path, expected: str) -> Iterator[None]:
    """Inside, the library prints nothing, and whatever it raises becomes an ``InputError`` of one sentence."""
    logging = _transformers().utils.logging
    verbosity, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except (InputError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise InputError(f"{path}: cannot be read ({one_line(str(error))[:300]}), {expected}") from None
    finally:
        logging.set_verbosity(verbosity)
        if has_bars:
            logging.enable_progress_bar()


def _package_folders(name: str) -> list[Path]:
    spec = find_spec(name) if name.isidentifier() else None
    return [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
