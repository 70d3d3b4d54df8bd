"""From text files to vocabularies and encoded corpora."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, compress

import numpy as np
from numpy.typing import NDArray

from antiphon.data.corpus import Corpus, CountedCorpus, FilterStats, LengthLimits
from antiphon.exceptions import InputError, RecipeError
from antiphon.metrics.output_metrics import BLEU_ORDER
from antiphon.recipe.schema import Recipe, token_kinds
from antiphon.recipe.sections import TrainSection
from antiphon.runs.build import build_limits, build_normalisation, may_copy_words, reads_source
from antiphon.runs.run_folder import RunFolder
from antiphon.terminal import Say
from antiphon.torch_free.batch import plan_batches
from antiphon.torch_free.codec import NO_FEATURES, PairCodec, train_sentencepiece
from antiphon.torch_free.readers import Files, Pair, read_pairs, read_targets, read_unpaired
from antiphon.torch_free.vocab import WordIds
from antiphon.training.resolution import Facts, Resolution, required_files, resolve, resolve_reading, share_vocabulary


@dataclass(frozen=True)
class Prepared:
    """All that training needs besides settings and a model."""

    codec: PairCodec
    train: Corpus
    dev: Corpus


def prepare(recipe: Recipe, run: RunFolder, say: Say) -> tuple[Resolution, Prepared]:
    """All settings of a new run, with its vocabularies, which are written into its folder, and its data."""
    settings = resolve_reading(recipe)
    train = _encode_training_pairs(settings.recipe, run)
    _refuse_no_pairs(settings.recipe.data.train, train.stats)
    settings = resolve(settings, facts_of(settings.recipe, run.codec(settings.recipe), train))
    return settings, _with_dev(settings.recipe, run, train, say)


def prepare_again(recipe: Recipe, run: RunFolder, say: Say) -> Prepared:
    """The data of an existing run, in the ids of its vocabularies."""
    train = _encode(recipe, run, training_pairs(recipe), build_limits(recipe))
    _refuse_no_pairs(recipe.data.train, train.stats)
    return _with_dev(recipe, run, train, say)


def facts_of(recipe: Recipe, codec: PairCodec, train: Corpus) -> Facts:
    """What the training pairs of a recipe are like, with the batches of a pass in its first order."""
    batches = plan_pass(recipe.train, train, np.random.default_rng([recipe.train.seed, 0]))
    lengths = (train.source_lengths, train.target_lengths) if reads_source(recipe) else None
    return Facts(len(train), len(batches), share_vocabulary(recipe, codec), lengths)


def plan_pass(settings: TrainSection, train: Corpus, order: np.random.Generator) -> list[NDArray[np.int64]]:
    """The indices of the pairs of every batch of a pass; other orders may have a few batches more or fewer."""
    size, cells = settings.batch_size, settings.max_batch_cells
    return plan_batches(train.source_lengths, train.target_lengths, batch_size=size, max_cells=cells, order=order)


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
    pairs = list(dev_pairs(recipe))
    sources = codec.source.tokens_of([pair.source for pair in pairs])
    targets = codec.target.tokens_of([pair.target for pair in pairs])
    lengths = [np.array(list(map(len, tokens)), np.int64) for tokens in (sources, targets)]
    return list(compress(pairs, FilterStats().admit(lengths[0], lengths[1], _dev_limits(recipe))))


def _dev_limits(recipe: Recipe) -> LengthLimits:
    """Limits on the length of dev pairs: those of training pairs, or none."""
    return build_limits(recipe) if recipe.data.limit_dev else LengthLimits()


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


def train_sentencepiece_models(recipe: Recipe, run: RunFolder) -> None:
    """Trains the SentencePiece models of a recipe on its training pairs."""
    steps = build_normalisation(recipe.data)
    for side, kind in token_kinds(recipe.data).items():
        if kind == "sentencepiece" and (side == "target" or reads_source(recipe)):
            texts = (steps(getattr(pair, side)) for pair in training_pairs(recipe))
            train_sentencepiece(texts, run.sentencepiece_path(side), recipe.data.sentencepiece_size)


def _encode_training_pairs(recipe: Recipe, run: RunFolder) -> Corpus:
    """Makes the vocabularies of a new run, or takes those of another, and encodes the training pairs."""
    limits = build_limits(recipe)
    if recipe.data.vocab_from is not None:
        _take_vocabularies(recipe, run, RunFolder.open(recipe.data.vocab_from))
        return _encode(recipe, run, training_pairs(recipe), limits)
    train_sentencepiece_models(recipe, run)
    tokeniser, targets_only = run.pair_tokeniser(recipe), not reads_source(recipe)
    counted = CountedCorpus.read(training_pairs(recipe), tokeniser, limits, targets_only=targets_only)
    source, target = (side.vocab(recipe.data.min_count) for side in (counted.source, counted.target))
    features = counted.features.vocab() if recipe.data.features else NO_FEATURES
    run.save_vocabs(source, target, features)
    words = WordIds(target)
    copied = words.encode(counted.source) if may_copy_words(recipe) else None
    targets = target.encode(counted.target) if copied is None else words.encode(counted.target)
    return counted.with_ids(source.encode(counted.source), targets, features.encode(counted.features), copied)


def _encode(recipe: Recipe, run: RunFolder, pairs: Iterator[Pair], limits: LengthLimits) -> Corpus:
    """The pairs in the ids of the run's vocabularies, with the columns that the recipe's model needs."""
    columns = {"targets_only": not reads_source(recipe), "may_copy": may_copy_words(recipe)}
    return Corpus.encode(pairs, run.codec(recipe), limits, **columns)


def _with_dev(recipe: Recipe, run: RunFolder, train: Corpus, say: Say) -> Prepared:
    """The training pairs of a run together with its dev pairs."""
    dev = _encode(recipe, run, dev_pairs(recipe), _dev_limits(recipe))
    _refuse_no_pairs(recipe.data.dev, dev.stats)
    for name, corpus in (("train", train), ("dev", dev)):
        say(f"{name}: {corpus.stats}")
    if recipe.train.dev_metric == "bleu" and dev.target_lengths.max() <= BLEU_ORDER:  # the end symbol is counted
        say("dev: no target has four tokens, so bleu is 0, and the best epoch is that with the lowest perplexity")
    codec = run.codec(recipe)
    size = len(codec.target.vocab) if codec.copies_words else 0
    return Prepared(codec, replace(train, copied_size=size), replace(dev, copied_size=size))


def _refuse_no_pairs(files: Files | None, stats: FilterStats) -> None:
    if not stats.kept:
        name = " + ".join(map(str, files)) if isinstance(files, tuple) else str(files)
        raise InputError(f"{name}: no pairs to use ({stats}), expected lines of source<TAB>target")


def _copy_vocabularies(one: RunFolder, other: RunFolder, *, swap: bool) -> None:
    """Copies the files that decide the ids of tokens; ``swap`` exchanges source and target."""
    sides = {"source": "target", "target": "source"} if swap else {}
    for side in ("source", "target", "features"):
        for path in (one.file(f"{side}.vocab"), one.sentencepiece_path(side)):
            if path.exists():
                (other.path / f"{sides.get(side, side)}{path.suffix}").write_bytes(path.read_bytes())
