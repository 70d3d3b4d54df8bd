"""From text files to vocabularies and encoded corpora, made in a run folder or taken from a cache.

Corpora are reused as long as nothing has changed that they were made from. Beside them, ``contents.json`` has a hash of
the settings that decided how text was encoded, the size and modification time of every file that was read, by a hash of
its path, and the SHA-256 of every file that was written. It is written last: without it, corpora are unfinished.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import chain, compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon import __version__
from antiphon.data.corpus import Corpus, FilterStats, LengthLimits, remap_corpus_ids, write_corpus, write_counted_corpus
from antiphon.exceptions import InputError, RecipeError, is_disk_full
from antiphon.metrics.output_metrics import BLEU_ORDER
from antiphon.recipe.schema import Recipe, token_kinds
from antiphon.recipe.sections import TrainSection
from antiphon.runs.build import build_limits, build_normalisation, may_copy_words, reads_source
from antiphon.runs.run_folder import RunFolder
from antiphon.storage.files import (
    digest_file,
    locked,
    new_scratch_folder,
    parse_sealed,
    remove_tree,
    render_sealed,
    sweep,
    sync_path,
    write_atomically,
)
from antiphon.terminal import Say, silent
from antiphon.torch_free.batch import plan_batches
from antiphon.torch_free.codec import NO_FEATURES, PairCodec, SentencePiece, train_sentencepiece
from antiphon.torch_free.readers import Files, Pair, read_pairs, read_targets, read_text, read_unpaired
from antiphon.torch_free.vocab import WordIds
from antiphon.training.resolution import Facts, Resolution, required_files, resolve, resolve_reading, share_vocabulary

_IGNORED = {"test", "cache", "vectors", "more_words"}
"""Data settings that have no effect on encoded pairs."""


@dataclass(frozen=True)
class CacheKey:
    """The settings and files that encoded corpora depend on; a file is its size and modification time."""

    settings: dict[str, Any]
    files: dict[str, list[int]]

    @classmethod
    def of(cls, recipe: Recipe) -> "CacheKey":
        """The key of a recipe and of its files as they are now."""
        settings = {
            "antiphon": __version__,
            "reads_source": reads_source(recipe),
            "limits": asdict(build_limits(recipe)),
            **({"may_copy_words": True} if may_copy_words(recipe) else {}),
            **recipe.data.model_dump(mode="json", exclude=_IGNORED),
        }
        return cls(settings, {str(path): _stamp(path) for path in _files(recipe)})

    @property
    def name(self) -> str:
        """A hash of settings and paths; it stays the same when the contents of the files change."""
        return _hash([self.settings, sorted(self.files)])

    def stored(self) -> dict[str, Any]:
        """The key as it is written into a folder, without paths: the folder may be copied elsewhere."""
        return {
            "settings": _hash(self.settings),
            "files": {_hash(path): stamp for path, stamp in self.files.items()},
        }


def save_contents(corpus: Path, key: CacheKey, pairs: dict[str, str], vocabularies: Sequence[Path]) -> None:
    """Marks the corpora of a folder as complete; ``pairs`` describes how many pairs of each were kept and dropped."""
    written = [*(corpus / f"{name}.arrow" for name in pairs), *vocabularies]
    digests = {path.name: asdict(digest_file(path)) for path in written}
    write_atomically(_contents(corpus), render_sealed({**key.stored(), "pairs": pairs, "digests": digests}))


def load_pairs(corpus: Path) -> dict[str, str]:
    """How many pairs of each corpus were kept and dropped, as ``save_contents`` wrote it."""
    pairs: dict[str, str] = json.loads(read_text(_contents(corpus)))["pairs"]
    return pairs


def vocabulary_files(run: RunFolder) -> list[Path]:
    """The files that decide the ids of tokens."""
    sides = ("source", "target", "features")
    paths = [path for side in sides for path in (run.file(f"{side}.vocab"), run.sentencepiece_path(side))]
    return [path for path in paths if path.exists()]


def is_current(run: RunFolder, key: CacheKey, say: Say = silent) -> bool:
    """Whether a folder has corpora that can be used for a key; ``say`` gets a line if it has others."""
    if not _contents(run.corpus).exists():
        return False
    reason = stale_reason(run, key)
    if reason is not None:
        say(f"{reason}: the data are encoded again")
    return reason is None


def stale_reason(run: RunFolder, key: CacheKey) -> str | None:
    """Why the corpora of a folder cannot be used for a key; None if they can."""
    corpus = run.corpus
    try:
        contents = parse_sealed(read_text(_contents(corpus)).encode())
        settings, files, digests = contents["settings"], contents["files"], contents["digests"]
    except (OSError, ValueError, KeyError, RecursionError):
        return f"{_contents(corpus)} is damaged"
    if settings != key.stored()["settings"]:
        return f"{corpus} has other settings"
    changed = [path for path, stamp in key.files.items() if files.get(_hash(path)) != stamp]
    written = [*sorted(corpus.glob("*.arrow")), *vocabulary_files(run)]
    missing = digests.keys() - {path.name for path in written}
    damaged = [path for path in written if asdict(digest_file(path)) != digests.get(path.name)]
    return next((f"{path} has changed" for path in [*changed, *sorted(missing), *damaged]), None)


@contextmanager
def staged_entry(cache: Path, key: CacheKey) -> Iterator[RunFolder]:
    """A new folder in the cache that becomes the entry of a key at the end, or is removed if encoding fails.

    If another process was faster, its entry stays.
    """
    entry = RunFolder(cache / key.name)
    with ExitStack() as held:
        try:
            cache.mkdir(parents=True, exist_ok=True)
            with locked(cache, wait=True):
                sweep(cache)
                stage = new_scratch_folder(cache)
        except OSError as error:
            if is_disk_full(error):
                raise
            raise RecipeError(f"data.cache = {cache}: {error.strerror}, expected a folder to write into") from None
        held.callback(remove_tree, stage)
        yield RunFolder(stage)
        with locked(cache, wait=True):
            if not is_current(entry, key):
                remove_tree(entry.path)
                stage.rename(entry.path)
                sync_path(cache)


def _hash(known: Any) -> str:
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]


def _contents(corpus: Path) -> Path:
    return corpus / "contents.json"


def _files(recipe: Recipe) -> Iterator[Path]:
    """Every file that encoding reads."""
    data = recipe.data
    for files in (data.train, data.dev):
        yield from files if isinstance(files, tuple) else [files] if files is not None else []
    yield from () if reads_source(recipe) else data.unpaired
    if data.vocab_from is not None:
        yield from _vocabularies_of(data.vocab_from)
    yield from (path for path in (data.source_sentencepiece, data.target_sentencepiece) if path is not None)


def _vocabularies_of(run: Path) -> list[Path]:
    """The files of a run folder that vocabularies are taken from."""
    return sorted(path for path in run.glob("*") if path.suffix in (".vocab", ".spm"))


def _stamp(path: Path) -> list[int]:
    try:
        found = path.stat()
    except OSError:
        return []
    return [found.st_size, found.st_mtime_ns]


@dataclass(frozen=True)
class Prepared:
    """All that training needs besides settings and a model."""

    codec: PairCodec
    train: Corpus
    dev: Corpus


def prepare(recipe: Recipe, run: RunFolder, say: Say) -> tuple[Resolution, Prepared]:
    """All settings, and vocabularies and encoded data: made here, or taken from the cache."""
    settings = resolve_reading(recipe)
    recipe, key, cache = settings.recipe, CacheKey.of(settings.recipe), recipe.data.cache
    if cache is None:
        _encode_all(recipe, run, key)
        return _open_new(settings, run, run.corpus, say)
    entry = RunFolder(cache / key.name)
    if is_current(entry, key, say):
        say(f"encoded before: {entry.path}")
    else:
        with staged_entry(cache, key) as stage:
            _encode_all(recipe, stage, key)
    _copy_vocabularies(entry, run)
    return _open_new(settings, run, entry.corpus, say)


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
    dev = write_corpus(dev_pairs(recipe), codec, path, _dev_limits(recipe), **_columns(recipe))
    _refuse_no_pairs(recipe.data.dev, dev)
    save_contents(new.corpus, key, {"train": str(train), "dev": str(dev)}, vocabulary_files(run))


def _refuse_no_pairs(files: Files | None, stats: FilterStats) -> None:
    if not stats.kept:
        name = " + ".join(map(str, files)) if isinstance(files, tuple) else str(files)
        raise InputError(f"{name}: no pairs to use ({stats}), expected lines of source<TAB>target")


def _open_new(settings: Resolution, run: RunFolder, corpus: Path, say: Say) -> tuple[Resolution, Prepared]:
    """All settings of a new run, and its data."""
    facts = facts_of(settings.recipe, run.codec(settings.recipe), Corpus(corpus / "train.arrow"))
    settings = resolve(settings, facts)
    return settings, _open(settings.recipe, run, corpus, say)


def _open(recipe: Recipe, run: RunFolder, corpus: Path, say: Say) -> Prepared:
    for name, pairs in load_pairs(corpus).items():
        say(f"{name}: {pairs}")
    codec = run.codec(recipe)
    size = len(codec.target.vocab) if codec.copies_words else 0
    train, dev = (Corpus(corpus / f"{name}.arrow", copied_size=size) for name in ("train", "dev"))
    if recipe.train.dev_metric == "bleu" and dev.target_lengths.max() <= BLEU_ORDER:  # the end symbol is counted
        say("dev: no target has four tokens, so bleu is 0, and the best epoch is that with the lowest perplexity")
    return Prepared(codec, train, dev)


def _vocabularies(run: RunFolder) -> dict[str, bytes]:
    """The contents of the files that decide the ids of tokens."""
    return {path.name: path.read_bytes() for path in vocabulary_files(run)}


def _copy_vocabularies(one: RunFolder, other: RunFolder, *, swap: bool = False) -> None:
    """Copies the files that decide the ids of tokens; ``swap`` exchanges source and target."""
    sides = {"source": "target", "target": "source"} if swap else {}
    for name, content in _vocabularies(one).items():
        side, ending = name.split(".")
        (other.path / f"{sides.get(side, side)}.{ending}").write_bytes(content)
