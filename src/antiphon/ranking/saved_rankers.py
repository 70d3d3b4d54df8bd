"""Saves and loads rankers in run folders."""

from collections.abc import Iterable
from typing import cast

import numpy as np
import torch
from torch import Tensor

from antiphon.exceptions import RecipeError, RunError
from antiphon.ranking.matchers import Matcher, build_matcher
from antiphon.ranking.overlap import Logistic, Overlap, read_stop_words
from antiphon.ranking.question_batches import MatchCorpus
from antiphon.ranking.questions import Question
from antiphon.ranking.rankers import (
    BM25Ranker,
    EncodeQuestions,
    MatchRanker,
    OverlapRanker,
    RandomRanker,
    Ranker,
    SplitWords,
    explain_by_attention,
    feature_names,
)
from antiphon.ranking.sentence_models import AttentiveState
from antiphon.ranking.word_vectors import WordVectors, read_vectors
from antiphon.recipe.kinds import KINDS
from antiphon.recipe.model_sections import MatcherSection, OverlapSection
from antiphon.recipe.schema import Recipe
from antiphon.recipe.sections import DataSection
from antiphon.runs.build import build_normalisation
from antiphon.runs.run_folder import RunFolder
from antiphon.storage.tensors import load_finite, load_into, save_tensors
from antiphon.terminal import count_of
from antiphon.torch_free.vocab import PAD, SPECIALS, UNKNOWN, Vocab


def load_ranker(run: RunFolder, recipe: Recipe, device: str = "cpu") -> Ranker:
    """The trained ranker of a run, whatever its kind."""
    rank = KINDS[recipe.model.kind].rank
    assert rank is not None
    return rank()(run, recipe, device)


def load_match_ranker(run: RunFolder, recipe: Recipe, device: str = "cpu") -> MatchRanker:
    """The trained matcher of a run, with its counts of words in common if it has any."""
    settings, words = matcher_settings(recipe), word_splitter(recipe.data)
    expected = feature_names(settings.overlap_feature)
    overlap, logistic = (load_overlap(run), _load_logistic(run, expected)) if settings.overlap else (None, None)
    matcher, encode = load_matcher(run, recipe).to(device), question_encoder(run, recipe)
    attends = isinstance(matcher.sentence, AttentiveState)
    explain = explain_by_attention(matcher, encode, words) if attends else None
    return MatchRanker(matcher, encode, words, overlap, logistic, settings.overlap_feature, explain)


def load_overlap_ranker(run: RunFolder, recipe: Recipe, device: str = "cpu") -> Ranker:
    """The baseline of a run; no device is needed."""
    baseline, words = cast(OverlapSection, recipe.model).baseline, word_splitter(recipe.data)
    if baseline == "random":
        return RandomRanker(recipe.train.seed)
    if baseline == "bm25":
        return BM25Ranker(words)
    return OverlapRanker(load_overlap(run), words, weighted=baseline == "idf_word_count")


def matcher_settings(recipe: Recipe) -> MatcherSection:
    """The settings of the matcher in a recipe."""
    assert isinstance(recipe.model, MatcherSection)
    return recipe.model


def new_matcher(run: RunFolder, recipe: Recipe) -> Matcher:
    """An untrained network over the word vectors of the run."""
    vocab, vectors = run.vocab("words"), _load_vectors(run)
    if len(vocab) != len(vectors):
        raise RunError(f"{run.vectors}: {len(vectors)} vectors, expected {len(vocab)} as in {run.words.name}")
    stops = vocab.encode(word for word in sorted(read_stop_words()) if word in vocab)
    return build_matcher(matcher_settings(recipe), vectors, torch.from_numpy(stops.astype(np.int64)))


def load_matcher(run: RunFolder, recipe: Recipe) -> Matcher:
    """The trained network of a run."""
    has_layers = matcher_settings(recipe).sentence not in ("bag_of_words", "bigram")
    layers = recipe.model.depth if has_layers else 1
    return cast(Matcher, load_into(lambda: new_matcher(run, recipe), run.trained_weights(), layers))


def question_encoder(run: RunFolder, recipe: Recipe) -> EncodeQuestions:
    """Encodes questions as the run's network reads them."""
    vocab, words = run.vocab("words"), word_splitter(recipe.data)
    return lambda questions: MatchCorpus.of(questions, lambda text: vocab.encode(words(text)))


def word_splitter(data: DataSection) -> SplitWords:
    """Splits text into words, after normalisation."""
    normalise = build_normalisation(data)
    return lambda text: normalise(text).split()


def save_words(run: RunFolder, known: WordVectors) -> None:
    """Writes words and their vectors; padding is zero, and all unknown words share one vector."""
    special = np.zeros((len(SPECIALS), known.vectors.shape[1]), np.float32)
    special[UNKNOWN] = known.unknown
    assert not special[PAD].any()
    Vocab(known.words).save(run.words)
    vectors = torch.from_numpy(np.concatenate([special, known.vectors]))
    save_tensors({"vectors": vectors}, run.vectors)


def load_overlap(run: RunFolder) -> Overlap:
    """The word frequencies of the run."""
    if not run.overlap.is_file():
        raise RunError(f"{run.overlap}: missing, expected the word frequencies of a run that counts words in common")
    return Overlap.load(run.overlap, read_stop_words())


def _load_logistic(run: RunFolder, expected: tuple[str, ...]) -> Logistic:
    if not run.logistic.is_file():
        raise RunError(f"{run.logistic}: missing, expected the weights of words in common; train again")
    logistic = Logistic.load(run.logistic)
    if logistic.names != expected:
        raise RunError(
            f"{run.logistic}: weights of {', '.join(logistic.names)}, expected those of {', '.join(expected)}"
        )
    return logistic


def _load_vectors(run: RunFolder) -> Tensor:
    try:
        return load_finite(run.vectors)["vectors"]
    except (OSError, KeyError) as error:
        raise RunError(f"{run.vectors}: missing or damaged ({error}), expected word vectors") from None


def copy_vectors(recipe: Recipe, run: RunFolder, questions: Iterable[Question]) -> str:
    """Copies the vectors of all words of the questions into the run; returns a line on how many words have one."""
    data, words = recipe.data, word_splitter(recipe.data)
    if data.vectors is None:
        raise RecipeError("data.vectors: unset, expected a file of word vectors; give one with --set data.vectors=FILE")
    texts = (text for question in questions for text in (question.text, *(answer.text for answer in question.answers)))
    wanted = {word for text in texts for word in words(text)}
    known = read_vectors(data.vectors, wanted, data.more_words)
    save_words(run, known)
    found = len(wanted.intersection(known.words))
    return f"vectors: {found:,} of {count_of(len(wanted), 'word')} known, {len(known.words) - found:,} more kept"
