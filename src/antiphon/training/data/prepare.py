"""From text files to a run folder with vocabularies and encoded corpora."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from antiphon.data.corpus import Corpus, FilterStats, LengthLimits, remap_corpus_ids, write_corpus, write_counted_corpus
from antiphon.exceptions import InputError, RecipeError
from antiphon.metrics.output_metrics import BLEU_ORDER
from antiphon.recipe.schema import Recipe, token_kinds
from antiphon.runs.build import build_limits, build_normalisation, may_copy_words, reads_source
from antiphon.runs.run_folder import RunFolder
from antiphon.terminal import Say
from antiphon.torch_free.codec import NO_FEATURES, PairCodec, SentencePiece, train_sentencepiece
from antiphon.torch_free.readers import Files, Pair, read_pairs, read_targets, read_unpaired
from antiphon.torch_free.vocab import WordIds
from antiphon.training.data.data_defaults import (
    required_files,
    with_data_defaults,
    with_model_defaults,
    with_search_defaults,
)
from antiphon.training.data.encoded_cache import (
    CacheKey,
    is_current,
    load_pairs,
    save_contents,
    staged_entry,
    vocabulary_files,
)


@dataclass(frozen=True)
class Prepared:
    """All that training needs besides a model."""

    recipe: Recipe
    codec: PairCodec
    train: Corpus
    dev: Corpus


def prepare(recipe: Recipe, run: RunFolder, say: Say) -> Prepared:
    """Makes vocabularies and encodes the data, or takes both from the cache."""
    recipe = with_data_defaults(recipe)
    key, cache = CacheKey.of(recipe), recipe.data.cache
    if cache is None:
        _encode_all(recipe, run, key)
        return _open_new(recipe, run, run.corpus, say)
    entry = RunFolder(cache / key.name)
    if is_current(entry, key, say):
        say(f"encoded before: {entry.path}")
    else:
        with staged_entry(cache, key) as stage:
            _encode_all(recipe, stage, key)
    _copy_vocabularies(entry, run)
    return _open_new(recipe, run, entry.corpus, say)


def prepare_again(recipe: Recipe, run: RunFolder, say: Say) -> Prepared:
    """The corpora of a resumed run; if they are missing, they are encoded again with the run's vocabularies."""
    key, cache = CacheKey.of(recipe), recipe.data.cache
    if cache is not None:
        entry = RunFolder(cache / key.name)
        if is_current(entry, key, say) and _vocabularies(entry) == _vocabularies(run):
            return _open(recipe, run, entry.corpus, say)
    if not is_current(run, key, say):
        with run.changed() as new:
            _encode_with(run, recipe, new, key)
    return _open(recipe, run, run.corpus, say)


def training_pairs(recipe: Recipe) -> Iterator[Pair]:
    """The pairs to learn from; for a language model, their targets and all unpaired text."""
    data = recipe.data
    if not reads_source(recipe):
        paired = [pairs_of(recipe, data.train)] if data.train is not None else []
        unpaired = [read_unpaired(path, features=bool(data.features)) for path in data.unpaired]
        if not paired and not unpaired:
            raise RecipeError("data.train and data.unpaired: both unset, expected text to learn from")
        return chain.from_iterable(paired + unpaired)
    return pairs_of(recipe, required_files(data, "train"))


def dev_pairs(recipe: Recipe) -> Iterator[Pair]:
    """The dev pairs."""
    return pairs_of(recipe, required_files(recipe.data, "dev"))


def encoded_dev_pairs(recipe: Recipe, codec: PairCodec) -> list[Pair]:
    """Every dev pair that is encoded, in the same order."""
    return [pair for pair in dev_pairs(recipe) if codec.target.tokens(pair.target) and codec.source.tokens(pair.source)]


def pairs_of(recipe: Recipe, files: Files) -> Iterator[Pair]:
    """The pairs of a file, in the direction and with the columns that the recipe's model reads."""
    data, read = recipe.data, read_pairs if reads_source(recipe) else read_targets
    return read(files, features=bool(data.features), swap=data.swap, columns=data.columns)


def _take_vocabularies(recipe: Recipe, run: RunFolder, other: RunFolder) -> None:
    """Copies vocabularies and SentencePiece models of another run, which must tokenise text the same way.

    If that run maps in the other direction, its source vocabulary is the target vocabulary of this one.
    """
    theirs = other.recipe().data
    swap = theirs.swap != recipe.data.swap
    found = token_kinds(theirs.model_copy(update={"swap": recipe.data.swap}))
    for side, kind in token_kinds(recipe.data).items():
        if found[side] != kind and (side == "target" or reads_source(recipe)):
            raise RecipeError(f"data.vocab_from: {other.path} has {found[side]} as {side} tokens, expected {kind}")
    if build_normalisation(recipe.data) != build_normalisation(theirs):
        raise RecipeError(f"data.vocab_from: {other.path} has another normalisation ({build_normalisation(theirs)})")
    _copy_vocabularies(other, run, swap=swap)


def place_sentencepiece_models(recipe: Recipe, run: RunFolder) -> None:
    """Puts the SentencePiece models of a recipe into the run: given ones, or new ones of the training pairs."""
    data = recipe.data
    given = [data.source_sentencepiece, data.target_sentencepiece]
    steps = build_normalisation(data)
    for (side, kind), model in zip(token_kinds(data).items(), reversed(given) if data.swap else given, strict=True):
        if kind != "sentencepiece":
            continue
        copy = run.sentencepiece_path(side)
        if model is not None:
            SentencePiece(model)
            shutil.copyfile(model, copy)
        elif side == "target" or reads_source(recipe):
            texts = (steps(getattr(pair, side)) for pair in training_pairs(recipe))
            train_sentencepiece(texts, copy, data.sentencepiece_size)


def _encode_all(recipe: Recipe, run: RunFolder, key: CacheKey) -> None:
    """Writes vocabularies and encoded corpora into a new folder."""
    if recipe.data.vocab_from is not None:
        _take_vocabularies(recipe, run, RunFolder.open(recipe.data.vocab_from))
        _encode_with(run, recipe, run, key)
    else:
        place_sentencepiece_models(recipe, run)
        stats = _make_vocabularies_and_encode(recipe, run)
        _encode_dev(run, recipe, run, key, stats)


def _encode_with(run: RunFolder, recipe: Recipe, new: RunFolder, key: CacheKey) -> None:
    """Encodes both corpora into ``new`` with the vocabularies of ``run``."""
    new.corpus.mkdir()
    path, limits, codec = new.corpus / "train.arrow", build_limits(recipe), run.codec(recipe)
    stats = write_corpus(training_pairs(recipe), codec, path, limits, **_columns(recipe))
    _encode_dev(run, recipe, new, key, stats)


def _make_vocabularies_and_encode(recipe: Recipe, run: RunFolder) -> FilterStats:
    """Reads the training pairs once: makes their vocabularies and encodes them."""
    run.corpus.mkdir()
    path, limits = run.corpus / "counted.arrow", build_limits(recipe)
    counted = write_counted_corpus(
        training_pairs(recipe), run.pair_tokeniser(recipe), path, limits, targets_only=not reads_source(recipe)
    )
    source, target = (side.vocab(recipe.data.min_count) for side in (counted.source, counted.target))
    features = counted.features.vocab() if recipe.data.features else NO_FEATURES
    run.save_vocabs(source, target, features)
    words = WordIds(target)
    copied = words.encode_many(list(counted.source)) if may_copy_words(recipe) else None
    targets = target.encode(counted.target) if copied is None else words.encode_many(list(counted.target))
    tables = source.encode(counted.source), targets, features.encode(counted.features), copied
    remap_corpus_ids(path, run.corpus / "train.arrow", *tables)
    path.unlink()
    return counted.stats


def _columns(recipe: Recipe) -> dict[str, bool]:
    """Which columns of a corpus the recipe's model needs."""
    return {"targets_only": not reads_source(recipe), "may_copy": may_copy_words(recipe)}


def _encode_dev(run: RunFolder, recipe: Recipe, new: RunFolder, key: CacheKey, train: FilterStats) -> None:
    """Encodes the dev pairs and marks both corpora as complete; refuses a corpus without pairs."""
    _refuse_no_pairs(recipe.data.train, train)
    path, codec = new.corpus / "dev.arrow", run.codec(recipe)
    dev = write_corpus(dev_pairs(recipe), codec, path, LengthLimits(), **_columns(recipe))
    _refuse_no_pairs(recipe.data.dev, dev)
    save_contents(new.corpus, key, {"train": str(train), "dev": str(dev)}, vocabulary_files(run))


def _refuse_no_pairs(files: Files | None, stats: FilterStats) -> None:
    if not stats.kept:
        name = " + ".join(map(str, files)) if isinstance(files, tuple) else str(files)
        raise InputError(f"{name}: no pairs to use ({stats}), expected lines of source<TAB>target")


def _open_new(recipe: Recipe, run: RunFolder, corpus: Path, say: Say) -> Prepared:
    """The data of a new run, with settings decided that the recipe leaves unset."""
    train = Corpus(corpus / "train.arrow")
    recipe = with_model_defaults(recipe, run.codec(recipe), len(train))
    if reads_source(recipe):
        recipe = with_search_defaults(recipe, train.source_lengths, train.target_lengths)
    run.save_recipe(recipe)
    return _open(recipe, run, corpus, say)


def _open(recipe: Recipe, run: RunFolder, corpus: Path, say: Say) -> Prepared:
    for name, pairs in load_pairs(corpus).items():
        say(f"{name}: {pairs}")
    codec = run.codec(recipe)
    size = len(codec.target.vocab) if codec.copies_words else 0
    train, dev = (Corpus(corpus / f"{name}.arrow", copied_size=size) for name in ("train", "dev"))
    if recipe.train.dev_metric == "bleu" and dev.target_lengths.max() <= BLEU_ORDER:  # the end symbol is counted
        say("dev: no target has four tokens, so bleu is 0, and the best epoch is that with the lowest perplexity")
    return Prepared(recipe, codec, train, dev)


def _vocabularies(run: RunFolder) -> dict[str, bytes]:
    """The contents of the files that decide the ids of tokens."""
    return {path.name: path.read_bytes() for path in vocabulary_files(run)}


def _copy_vocabularies(one: RunFolder, other: RunFolder, *, swap: bool = False) -> None:
    """Copies the files that decide the ids of tokens; ``swap`` exchanges source and target."""
    sides = {"source": "target", "target": "source"} if swap else {}
    for name, content in _vocabularies(one).items():
        side, ending = name.split(".")
        (other.path / f"{sides.get(side, side)}.{ending}").write_bytes(content)
