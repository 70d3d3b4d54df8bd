"""Rankers score every candidate of a question, higher is better; run folders hold them."""

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, cast, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from antiphon.exceptions import RecipeError, RunError, check_installed
from antiphon.ranking.matchers import AttentiveState, Matcher, build_matcher
from antiphon.ranking.overlap import Logistic, Overlap, read_stop_words
from antiphon.ranking.question_batches import MatchCorpus
from antiphon.ranking.questions import Question
from antiphon.ranking.word_vectors import WordVectors, read_vectors
from antiphon.recipe.kinds import KINDS
from antiphon.recipe.model_sections import MatcherSection, OverlapSection
from antiphon.recipe.schema import Recipe
from antiphon.recipe.sections import DataSection
from antiphon.runs.build import build_normalisation
from antiphon.runs.run_folder import RunFolder
from antiphon.storage.tensors import load_finite, load_into, save_tensors
from antiphon.terminal import count_of
from antiphon.torch_free.batch import plan_batches
from antiphon.torch_free.vocab import PAD, SPECIALS, UNKNOWN, Vocab

Scores = NDArray[np.float64]
SplitWords = Callable[[str], list[str]]
"""Splits a text into words."""
WordWeights = tuple[tuple[str, float], ...]
"""The words of a sentence with their weights, which sum to 1."""
EncodeQuestions = Callable[[Sequence[Question]], MatchCorpus]
"""Makes all pairs of questions and candidates, as a network reads them."""
ExplainRanking = Callable[[Sequence[Question]], list[WordWeights]]
"""Gives the weights of the words of every candidate of questions, in the order of the candidates."""
LogisticFeature = Literal["log_odds", "probability"]
"""What a matcher says to the logistic regression of a ``+ count`` model."""
BATCH_SIZE = 256
"""Pairs scored at once."""
MAX_TOKENS = 32_768
"""Padded tokens of sentences in a batch."""


@runtime_checkable
class Ranker(Protocol):
    """The interface of rankers."""

    def score(self, questions: Sequence[Question]) -> list[Scores]:
        """The scores of each question's candidates, in their order."""
        ...


@dataclass(frozen=True)
class MatchRanker:
    """A network's log odds that a candidate is right, or those of the logistic regression on top of it.

    The regression is used with ``overlap`` and ``logistic``, which a ``+ count`` model has. ``explain`` gives weights
    of the words of each candidate, where the matcher has any.
    """

    matcher: Matcher
    encode: EncodeQuestions
    words: SplitWords
    overlap: Overlap | None = None
    logistic: Logistic | None = None
    feature: LogisticFeature = "log_odds"
    explain: ExplainRanking | None = None

    def score(self, questions: Sequence[Question]) -> list[Scores]:
        """Log odds."""
        scores = match_log_odds(self.matcher, self.encode(questions))
        if self.overlap is not None and self.logistic is not None:
            counts = overlap_counts(self.overlap, self.words, questions)
            scores = self.logistic.log_odds(pair_features(counts, scores, self.feature))
        return by_question(scores, questions)


@dataclass(frozen=True)
class OverlapRanker:
    """Scores by the number of shared words, or with ``weighted`` by the sum of their idf."""

    overlap: Overlap
    words: SplitWords
    weighted: bool

    def score(self, questions: Sequence[Question]) -> list[Scores]:
        """Counts or weighted counts."""
        counts = overlap_counts(self.overlap, self.words, questions)
        return by_question(counts[:, int(self.weighted)], questions)


@dataclass(frozen=True)
class RandomRanker:
    """Random scores, the same each time for the same question and sentence."""

    seed: int

    def score(self, questions: Sequence[Question]) -> list[Scores]:
        """Numbers between 0 and 1."""
        return [
            np.array([self._draw(question.text, answer.text) for answer in question.answers]) for question in questions
        ]

    def _draw(self, question: str, sentence: str) -> float:
        return zlib.crc32(f"{self.seed}\t{question}\t{sentence}".encode()) / 2**32


@dataclass(frozen=True)
class BM25Ranker:
    """BM25 by the bm25s library, each question's candidates being the collection."""

    words: SplitWords

    def score(self, questions: Sequence[Question]) -> list[Scores]:
        """BM25 scores with the library's own k1 and b."""
        return [self._score(question) for question in questions]

    def _score(self, question: Question) -> Scores:
        check_installed("bm25s", "qa", "model.baseline = bm25")
        import bm25s

        sentences = [self.words(answer.text) for answer in question.answers]
        index = bm25s.BM25()
        index.index(sentences, show_progress=False)
        scores: Scores = index.get_scores(self.words(question.text)).astype(np.float64)
        return scores


def rankings_of(ranker: Ranker, questions: Sequence[Question]) -> dict[str, dict[str, float]]:
    """The score of every candidate of every question, by their ids."""
    return name_scores(ranker.score(questions), questions)


def name_scores(scores: Sequence[Scores], questions: Sequence[Question]) -> dict[str, dict[str, float]]:
    """Scores by the ids of their questions and candidates."""
    return {
        question.id: {answer.id: float(score) for answer, score in zip(question.answers, row, strict=True)}
        for question, row in zip(questions, scores, strict=True)
    }


@torch.inference_mode()
def match_log_odds(matcher: Matcher, corpus: MatchCorpus) -> Scores:
    """A network's log odds for every pair."""
    scores = np.zeros(len(corpus))
    for indices in plan_match_batches(corpus, BATCH_SIZE):
        scores[indices] = matcher(corpus.batch(indices).to(matcher.device)).double().cpu().numpy()
    return scores


def plan_match_batches(
    corpus: MatchCorpus, batch_size: int, order: np.random.Generator | None = None
) -> list[NDArray[np.int64]]:
    """Indices of the pairs of each batch; sentences of similar length go together."""
    lengths = corpus.sentence_lengths
    return plan_batches(lengths, np.ones_like(lengths), batch_size=batch_size, max_cells=MAX_TOKENS, order=order)


def overlap_counts(overlap: Overlap, words: SplitWords, questions: Sequence[Question]) -> NDArray[np.float64]:
    """Number of shared words and sum of their idf, one row per pair."""
    rows = []
    for question in questions:
        asked = words(question.text)
        rows += [overlap.features(asked, words(answer.text)) for answer in question.answers]
    return np.array(rows).reshape(-1, 2)


def feature_names(feature: LogisticFeature) -> tuple[str, ...]:
    """The features of the logistic regression of a ``+ count`` model."""
    return "words in common", "idf of words in common", feature.replace("_", " ")


def pair_features(counts: NDArray[np.float64], log_odds: Scores, feature: LogisticFeature) -> NDArray[np.float64]:
    """The features of every pair: the counts of ``overlap_counts``, and what the matcher says.

    The thesis has the probability; near 0 or 1 it hardly tells candidates apart, its log odds do.
    """
    says = log_odds if feature == "log_odds" else 0.5 + 0.5 * np.tanh(log_odds / 2)
    return np.column_stack([counts, says])


def by_question(scores: Scores, questions: Sequence[Question]) -> list[Scores]:
    """The scores of all pairs, grouped by question."""
    ends = np.cumsum([len(question.answers) for question in questions])
    return np.split(scores, ends[:-1])


def explain_by_attention(matcher: Matcher, encode: EncodeQuestions, words: SplitWords) -> ExplainRanking:
    """The attention weights of each question over the words of its candidates."""

    @torch.inference_mode()
    def explain(questions: Sequence[Question]) -> list[WordWeights]:
        weights = _rows(encode(questions), matcher.attention, matcher.device)
        sentences = (answer.text for question in questions for answer in question.answers)
        return [
            tuple(zip(split, row.tolist(), strict=False))
            for split, row in zip(map(words, sentences), weights, strict=True)
        ]

    return explain


def _rows(corpus: MatchCorpus, weigh: Callable[..., torch.Tensor], device: torch.device) -> list[Scores]:
    """The weights of the tokens of each pair."""
    weights: list[Scores] = [np.zeros(0)] * len(corpus)
    lengths = corpus.sentence_lengths
    for indices in plan_match_batches(corpus, BATCH_SIZE):
        found = weigh(corpus.batch(indices).to(device)).double().cpu().numpy()
        for index, row in zip(indices, found, strict=True):
            weights[index] = row[: lengths[index]]
    return weights


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
