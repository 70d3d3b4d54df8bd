"""From text files to a run folder with vocabularies and encoded corpora."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from antiphon.build import build_limits, build_text_steps
from antiphon.config import DataSection, Recipe
from antiphon.data.codec import PairCodec, feature_symbol
from antiphon.data.corpus import Census, Corpus, Limits, write_corpus
from antiphon.data.readers import Files, Pair, has_features, read_pairs, read_targets, read_unpaired
from antiphon.data.tokenise import SentencePiece, train_sentencepiece
from antiphon.data.vocab import Vocab
from antiphon.errors import InputError, RecipeError
from antiphon.kinds import KINDS
from antiphon.run import RunFolder, token_kinds

Say = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """All that training needs besides a model."""

    recipe: Recipe
    codec: PairCodec
    train: Corpus
    dev: Corpus


def prepare(recipe: Recipe, run: RunFolder, say: Say) -> Prepared:
    """Reads the data twice: once to number its tokens, once to encode it."""
    recipe = settle_features(recipe)
    if recipe.data.vocab_from is not None:
        _take_vocabularies(recipe, run, RunFolder.open(recipe.data.vocab_from))
    else:
        _place_sentencepiece_models(recipe, run)
        run.save_vocabs(*count_tokens(recipe, run))
    run.save_recipe(recipe)
    return prepare_again(recipe, run, say)


def prepare_again(recipe: Recipe, run: RunFolder, say: Say) -> Prepared:
    """Encodes both corpora with the vocabularies that the run folder holds already."""
    codec = run.codec(recipe)
    run.corpus.mkdir(exist_ok=True)
    train = _encode(recipe, codec, training_pairs(recipe), run.corpus / "train.arrow", build_limits(recipe), say)
    dev = _encode(recipe, codec, dev_pairs(recipe), run.corpus / "dev.arrow", Limits(), say)
    return Prepared(recipe, codec, train, dev)


def reopen(run: RunFolder) -> Prepared:
    """What another process has prepared in the run folder."""
    recipe = run.recipe()
    train, dev = (Corpus(run.corpus / f"{name}.arrow") for name in ("train", "dev"))
    return Prepared(recipe, run.codec(recipe), train, dev)


def settle_features(recipe: Recipe) -> Recipe:
    """The recipe with ``data.features`` and what follows from it decided, where it left that open."""
    data, model = recipe.data, recipe.model
    if data.features is None:
        only_unpaired = data.train is None and not reads_source(recipe)
        found = has_features(_required(data, "dev" if only_unpaired else "train"))
        data = data.model_copy(update={"features": found})
    if model.forget_bias is None:
        model = model.model_copy(update={"forget_bias": 1.0 if data.features else 0.0})
    return recipe.model_copy(update={"data": data, "model": model})


def training_pairs(recipe: Recipe) -> Iterator[Pair]:
    """The pairs to learn from; for a language model, their targets and all unpaired text."""
    data = recipe.data
    if not reads_source(recipe):
        paired = [pairs_of(recipe, data.train)] if data.train is not None else []
        unpaired = [read_unpaired(path, features=bool(data.features)) for path in data.unpaired]
        if not paired and not unpaired:
            raise RecipeError("data.train and data.unpaired: both unset, expected text to learn from")
        return chain.from_iterable(paired + unpaired)
    return pairs_of(recipe, _required(data, "train"))


def dev_pairs(recipe: Recipe) -> Iterator[Pair]:
    """The pairs that decide which epoch is best."""
    return pairs_of(recipe, _required(recipe.data, "dev"))


def pairs_of(recipe: Recipe, files: Files) -> Iterator[Pair]:
    """The pairs of a file, in the direction and with the columns that the recipe's model reads."""
    if not reads_source(recipe):
        return read_targets(files, features=bool(recipe.data.features), swap=recipe.data.swap)
    return read_pairs(files, features=bool(recipe.data.features), swap=recipe.data.swap)


def reads_source(recipe: Recipe) -> bool:
    """Whether the recipe's model has an input."""
    return recipe.model.kind not in KINDS or KINDS[recipe.model.kind].reads_source


def _required(data: DataSection, name: str) -> Files:
    files: Files | None = getattr(data, name)
    if files is None:
        raise RecipeError(f"data.{name}: unset, expected a file of pairs; give one with --set data.{name}=FILE")
    return files


def _take_vocabularies(recipe: Recipe, run: RunFolder, other: RunFolder) -> None:
    """Copies vocabularies and SentencePiece models of another run, which must cut text the same way."""
    theirs = other.recipe().data
    for (side, ours), (_, kind) in zip(token_kinds(recipe.data), token_kinds(theirs), strict=True):
        if ours != kind and (side == "target" or reads_source(recipe)):
            raise RecipeError(f"data.vocab_from: {other.path} has {kind} as {side} tokens, expected {ours}")
    if build_text_steps(recipe.data) != build_text_steps(theirs):
        raise RecipeError(f"data.vocab_from: {other.path} has other text steps ({build_text_steps(theirs)})")
    for side in ("source", "target"):
        shutil.copyfile(other.path / f"{side}.vocab", run.path / f"{side}.vocab")
        if other.sentencepiece_path(side).exists():
            shutil.copyfile(other.sentencepiece_path(side), run.sentencepiece_path(side))


def _place_sentencepiece_models(recipe: Recipe, run: RunFolder) -> None:
    data = recipe.data
    given = [data.source_sentencepiece, data.target_sentencepiece]
    steps = build_text_steps(data)
    for (side, kind), model in zip(token_kinds(data), reversed(given) if data.swap else given, strict=True):
        if kind != "sentencepiece":
            continue
        place = run.sentencepiece_path(side)
        if model is not None:
            SentencePiece(model)
            shutil.copyfile(model, place)
        elif side == "target" or reads_source(recipe):
            texts = (steps(getattr(pair, side)) for pair in training_pairs(recipe))
            train_sentencepiece(texts, place, data.sentencepiece_size)


def count_tokens(recipe: Recipe, run: RunFolder) -> tuple[Vocab, Vocab]:
    """The vocabularies of the training pairs."""
    data, steps = recipe.data, build_text_steps(recipe.data)
    (_, source_kind), (_, target_kind) = token_kinds(data)
    split_source = run.tokeniser("source", source_kind).split if reads_source(recipe) else list
    split_target = run.tokeniser("target", target_kind).split
    source, target, features = Counter[str](), Counter[str](), Counter[str]()
    for pair in training_pairs(recipe):
        source.update(split_source(steps(pair.source)))
        target.update(split_target(steps(pair.target)))
        features.update(map(feature_symbol, pair.features))
    frequent = Counter({token: count for token, count in source.items() if count >= data.min_count})
    return Vocab.of_counts(frequent + features), Vocab.of_counts(target, data.min_count)


def _encode(recipe: Recipe, codec: PairCodec, pairs: Iterable[Pair], path: Path, limits: Limits, say: Say) -> Corpus:
    census: Census = write_corpus(pairs, codec, path, limits, targets_only=not reads_source(recipe))
    if not census.kept:
        files = getattr(recipe.data, path.stem)
        name = " + ".join(map(str, files)) if isinstance(files, tuple) else str(files)
        raise InputError(f"{name}: no pairs to use ({census}), expected lines of source<TAB>target")
    say(f"{path.stem}: {census}")
    return Corpus(path)
