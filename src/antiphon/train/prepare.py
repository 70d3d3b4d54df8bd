"""From text files to a run folder with vocabularies and encoded corpora."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from antiphon.build import build_limits, build_text_steps
from antiphon.config import DataSection, Recipe
from antiphon.data.codec import PairCodec, feature_symbol
from antiphon.data.corpus import Census, Corpus, Limits, write_corpus
from antiphon.data.readers import Files, Pair, has_features, read_pairs
from antiphon.data.tokenise import SentencePiece, train_sentencepiece
from antiphon.data.vocab import Vocab
from antiphon.errors import InputError, RecipeError
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
    train_files, dev_files = _required(recipe.data, "train"), _required(recipe.data, "dev")
    if recipe.data.features is None:
        data = recipe.data.model_copy(update={"features": has_features(train_files)})
        recipe = recipe.model_copy(update={"data": data})
    _place_sentencepiece_models(recipe, run, train_files)
    run.save_vocabs(*_count_tokens(recipe, run, train_files))
    run.save_recipe(recipe)
    return encode(recipe, run, say, train_files, dev_files)


def encode(recipe: Recipe, run: RunFolder, say: Say, train_files: Files, dev_files: Files) -> Prepared:
    """Encodes both corpora with the vocabularies that the run folder holds."""
    codec = run.codec(recipe)
    run.corpus.mkdir(exist_ok=True)
    train = _encode_file(recipe.data, codec, train_files, run.corpus / "train.arrow", build_limits(recipe), say)
    dev = _encode_file(recipe.data, codec, dev_files, run.corpus / "dev.arrow", Limits(), say)
    return Prepared(recipe, codec, train, dev)


def prepare_again(recipe: Recipe, run: RunFolder, say: Say) -> Prepared:
    """What ``prepare`` made, for a run that goes on."""
    return encode(recipe, run, say, _required(recipe.data, "train"), _required(recipe.data, "dev"))


def pairs_of(data: DataSection, files: Files) -> Iterator[Pair]:
    """The pairs of a file in the direction of the recipe."""
    return read_pairs(files, features=bool(data.features), swap=data.swap)


def _required(data: DataSection, name: str) -> Files:
    files: Files | None = getattr(data, name)
    if files is None:
        raise RecipeError(f"data.{name}: unset, expected a file of pairs; give one with --set data.{name}=FILE")
    return files


def _place_sentencepiece_models(recipe: Recipe, run: RunFolder, files: Files) -> None:
    data = recipe.data
    given = [data.source_sentencepiece, data.target_sentencepiece]
    sides = zip(token_kinds(data), reversed(given) if data.swap else given, strict=True)
    steps = build_text_steps(data)
    for (side, kind), model in sides:
        if kind != "sentencepiece":
            continue
        place = run.sentencepiece_path(side)
        if model is not None:
            SentencePiece(model)
            shutil.copyfile(model, place)
        else:
            texts = (steps(getattr(pair, side)) for pair in pairs_of(data, files))
            train_sentencepiece(texts, place, data.sentencepiece_size)


def _count_tokens(recipe: Recipe, run: RunFolder, files: Files) -> tuple[Vocab, Vocab]:
    data = recipe.data
    steps = build_text_steps(data)
    source_tokeniser, target_tokeniser = (run.tokeniser(side, kind) for side, kind in token_kinds(data))
    source_counts: Counter[str] = Counter()
    target_counts: Counter[str] = Counter()
    features: Counter[str] = Counter()
    for pair in pairs_of(data, files):
        source_counts.update(source_tokeniser.split(steps(pair.source)))
        target_counts.update(target_tokeniser.split(steps(pair.target)))
        features.update(map(feature_symbol, pair.features))
    source = Vocab.of_counts(source_counts, data.min_count)
    kept = Counter({token: source_counts[token] for token in source_counts if token in source})
    return Vocab.of_counts(kept + features), Vocab.of_counts(target_counts, data.min_count)


def _encode_file(data: DataSection, codec: PairCodec, files: Files, path: Path, limits: Limits, say: Say) -> Corpus:
    census: Census = write_corpus(pairs_of(data, files), codec, path, limits)
    name = " + ".join(map(str, files)) if isinstance(files, tuple) else str(files)
    if not census.kept:
        raise InputError(f"{name}: no pairs to use ({census}), expected lines of source<TAB>target")
    say(f"{path.stem}: {census}")
    return Corpus(path)
