"""Defaults of settings that a recipe leaves unset and that depend on the data."""

from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.exceptions import RecipeError
from antiphon.recipe.model_sections import TokenModelSection, TransducerSection, TransformerSection
from antiphon.recipe.schema import MAX_LENGTH_EXTRA, MAX_LENGTH_RATIO, DataSection, Recipe, token_kinds
from antiphon.runs.build import LENGTH_EXTRA, LENGTH_RATIO, may_copy_words, reads_source
from antiphon.torch_free.codec import PairCodec
from antiphon.torch_free.readers import Files, has_features
from antiphon.torch_free.vocab import SPECIALS

Lengths = NDArray[np.int64]
_MAX_HALLUCINATED, _MIN_HALLUCINATED = 0.5, 0.05
"""Fractions of the pairs that are hallucinated: at most, and at least where any are."""
_HALLUCINATED_PAIRS = 200
"""The number of hallucinated pairs, where their fraction is between the two."""
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


def with_data_defaults(recipe: Recipe) -> Recipe:
    """The recipe with defaults for ``data.features`` and ``data.split_hangul``."""
    data = recipe.data
    decided: dict[str, bool] = {}
    if data.split_hangul is None:
        decided["split_hangul"] = "chars" in (data.source_tokens, data.target_tokens)
    if data.features is None:
        only_unpaired = data.train is None and not reads_source(recipe)
        decided["features"] = has_features(required_files(data, "dev" if only_unpaired else "train"))
    return recipe.model_copy(update={"data": data.model_copy(update=decided)})


def required_files(data: DataSection, name: str) -> Files:
    """The files of a setting that must be given."""
    files: Files | None = getattr(data, name)
    if files is None:
        raise RecipeError(f"data.{name}: unset, expected a file of pairs; give one with --set data.{name}=FILE")
    return files


def with_model_defaults(recipe: Recipe, codec: PairCodec, pairs: int) -> Recipe:
    """The recipe with defaults that depend on its vocabularies and its number of pairs.

    These are ``model.dropout``, for a transformer ``train.label_smoothing``, for a transducer
    ``model.context``, ``model.copy_unknown``, ``model.copy_words`` and ``train.hallucination``.
    """
    model, train = recipe.model, recipe.train
    if isinstance(model, TokenModelSection) and model.dropout is None:
        is_low = pairs >= _MANY_PAIRS or model.needs_warmup
        dropout = _DROPOUT_MANY_PAIRS if is_low else _DROPOUT_FEW_PAIRS
        model = model.model_copy(update={"dropout": dropout})
    if train.label_smoothing is None and isinstance(model, TransformerSection):
        train = train.model_copy(update={"label_smoothing": _LABEL_SMOOTHING})
    if isinstance(model, TransducerSection):
        model = model.model_copy(update=_transducer_settings(recipe, model, codec))
        if train.hallucination is None:
            share = _hallucinated_share(pairs) if model.copy_unknown and recipe.data.target_tokens == "chars" else 0.0
            train = train.model_copy(update={"hallucination": share})
    return recipe.model_copy(update={"model": model, "train": train})


def with_search_defaults(recipe: Recipe, source_lengths: Lengths, target_lengths: Lengths) -> Recipe:
    """The recipe with limits of ``search`` that the targets of all training pairs are within.

    The ratio suits 99 of 100 pairs, with room for longer outputs; the rest is added to every limit.
    """
    search = recipe.search
    needed = float(np.quantile((target_lengths - LENGTH_EXTRA) / source_lengths, _TYPICAL_LENGTHS))
    enough = LENGTH_RATIO if needed <= LENGTH_RATIO else min(ceil(_LENGTH_ROOM * needed), MAX_LENGTH_RATIO)
    ratio = search.max_length_ratio or enough
    left = ceil((target_lengths - ratio * source_lengths).max())
    extra = search.max_length_extra or max(LENGTH_EXTRA, min(left, MAX_LENGTH_EXTRA))
    limits = {"max_length_ratio": float(ratio), "max_length_extra": extra}
    return recipe.model_copy(update={"search": search.model_copy(update=limits)})


def share_vocabulary(recipe: Recipe, codec: PairCodec) -> bool:
    """Whether source and target have the same kind of tokens and most target tokens are source tokens as well."""
    kinds = token_kinds(recipe.data)
    tokens = codec.target.vocab.tokens[len(SPECIALS) :]
    shared = sum(token in codec.source.vocab for token in tokens)
    return kinds["source"] == kinds["target"] and shared >= _SHARED * len(tokens)


def _transducer_settings(recipe: Recipe, model: TransducerSection, codec: PairCodec) -> dict[str, Any]:
    """Defaults of a transducer: copying by its vocabularies, context by its encoder."""
    shares = share_vocabulary(recipe, codec)
    copies = may_copy_words(recipe) and not recipe.data.swap and shares
    return {
        "copy_words": copies if model.copy_words is None else model.copy_words,
        "copy_unknown": shares if model.copy_unknown is None else model.copy_unknown,
        "context": model.context or ("attention" if _attends(recipe, model) else "none"),
    }


def _attends(recipe: Recipe, model: TransducerSection) -> bool:
    """Whether the decoder attends to the source: it pays between words, not between letters."""
    return model.encoder == "bidirectional" and token_kinds(recipe.data)["source"] != "chars"


def _hallucinated_share(pairs: int) -> float:
    """Half of 100 inflected words, a fifth of 1,000, nothing of more than 4,000."""
    share = min(_MAX_HALLUCINATED, _HALLUCINATED_PAIRS / pairs)
    return round(share, 2) if share >= _MIN_HALLUCINATED else 0.0
