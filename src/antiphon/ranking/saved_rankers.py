"""Saves and loads rankers in run folders, and ensembles of them in folders that hold copies of their runs."""

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from antiphon.exceptions import RecipeError, RunError
from antiphon.models.ensemble_model import Mean
from antiphon.ranking import pretrained_encoder
from antiphon.ranking.matchers import CrossEncoder, Matcher, PairModel, build_matcher
from antiphon.ranking.overlap import Logistic, Overlap, read_stop_words
from antiphon.ranking.pretrained_encoder import WordPieces
from antiphon.ranking.question_batches import JointCorpus, MatchCorpus
from antiphon.ranking.questions import Question
from antiphon.ranking.rankers import (
    BM25Ranker,
    EncodeQuestions,
    ExplainRanking,
    LogOddsRanker,
    MatchRanker,
    OverlapRanker,
    RandomRanker,
    Ranker,
    Scores,
    SplitWords,
    WordWeights,
    explain_by_attention,
    explain_by_gradient,
    feature_names,
)
from antiphon.ranking.sentence_models import AttentiveState, Pooling, PretrainedSentence
from antiphon.ranking.word_vectors import WordVectors, read_vectors
from antiphon.recipe.kinds import KINDS
from antiphon.recipe.model_sections import MatcherSection, OverlapSection, RankingEnsembleSection
from antiphon.recipe.schema import Recipe
from antiphon.recipe.sections import DataSection
from antiphon.runs.build import build_normalisation, count_parameters
from antiphon.runs.combined_runs import combined_run, open_members
from antiphon.runs.copies import copy_files
from antiphon.runs.run_folder import RunFolder
from antiphon.storage.manifest import MEMBERS
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
    explain = _explanation(matcher, encode, words, run)
    return MatchRanker(matcher, encode, words, overlap, logistic, settings.overlap_feature, explain)


def _explanation(
    matcher: PairModel, encode: EncodeQuestions, words: SplitWords, run: RunFolder
) -> ExplainRanking | None:
    """How a ranking is explained; None if it is not."""
    if isinstance(matcher, CrossEncoder):
        return explain_by_gradient(matcher, word_pieces(run))
    if isinstance(matcher, Matcher) and isinstance(matcher.sentence, AttentiveState):
        return explain_by_attention(matcher, encode, words)
    return None


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


def new_matcher(run: RunFolder, recipe: Recipe) -> PairModel:
    """An untrained network over the word vectors or the encoder of the run."""
    if matcher_settings(recipe).sentence == "pretrained":
        return _new_pretrained_matcher(run, recipe)
    vocab, vectors = run.vocab("words"), _load_vectors(run)
    if len(vocab) != len(vectors):
        raise RunError(f"{run.vectors}: {len(vectors)} vectors, expected {len(vocab)} as in {run.words.name}")
    stops = vocab.encode(word for word in sorted(read_stop_words()) if word in vocab)
    return build_matcher(matcher_settings(recipe), vectors, torch.from_numpy(stops.astype(np.int64)))


def load_matcher(run: RunFolder, recipe: Recipe) -> PairModel:
    """The trained network of a run."""
    layers, weights = recipe.model.depth, run.trained_weights()
    if matcher_settings(recipe).sentence == "pretrained":
        layers = pretrained_encoder.read_encoder_config(run.encoder_config).num_hidden_layers
    elif matcher_settings(recipe).sentence in ("bag_of_words", "bigram"):
        layers = 1
    return cast(PairModel, load_into(lambda: new_matcher(run, recipe), weights, layers))


def question_encoder(run: RunFolder, recipe: Recipe) -> EncodeQuestions:
    """Encodes questions as the run's network reads them."""
    settings = matcher_settings(recipe)
    if settings.reading == "joint":
        encode_pair = word_pieces(run).encode_pair
        return lambda questions: JointCorpus.of(questions, encode_pair)
    if settings.sentence == "pretrained":
        encode_text = word_pieces(run).encode
        return lambda questions: MatchCorpus.of(questions, encode_text)
    vocab, words = run.vocab("words"), word_splitter(recipe.data)
    return lambda questions: MatchCorpus.of(questions, lambda text: vocab.encode(words(text)))


def word_pieces(run: RunFolder) -> WordPieces:
    """The tokeniser of the run's encoder."""
    return WordPieces(run.encoder_tokeniser, pretrained_encoder.read_encoder_config(run.encoder_config))


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


def _new_pretrained_matcher(run: RunFolder, recipe: Recipe) -> PairModel:
    settings, encoder, pooling = (
        matcher_settings(recipe),
        pretrained_encoder.new_encoder(run.encoder_config),
        _pooling_of(run),
    )
    if settings.reading == "joint":
        return CrossEncoder(encoder, pooling)
    return Matcher(PretrainedSentence(encoder, pooling, frozen=settings.frozen))


def _pooling_of(run: RunFolder) -> Pooling:
    """The pooling of the run's encoder."""
    path = run.encoder_pooling
    try:
        return pretrained_encoder.check_pooling(json.loads(path.read_text(encoding="utf-8"))["pooling"], path)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError(f"{path}: missing or damaged ({error}), expected the pooling of an encoder") from None


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


def copy_encoder(recipe: Recipe, run: RunFolder) -> None:
    """Copies all but the weights of a pretrained encoder into the run; its weights are saved with the model."""
    folder = pretrained_encoder.find_encoder(matcher_settings(recipe).pretrained)
    pretrained_encoder.load_published(folder)  # an encoder that cannot be loaded is refused before training
    run.encoder_config.parent.mkdir()
    shutil.copyfile(folder / "config.json", run.encoder_config)
    pretrained_encoder.save_tokeniser(folder, run.encoder_tokeniser)
    WordPieces(run.encoder_tokeniser, pretrained_encoder.read_encoder_config(run.encoder_config))
    run.encoder_pooling.write_text(
        json.dumps({"pooling": pretrained_encoder.read_pooling(folder)}) + "\n", encoding="utf-8"
    )


def load_encoder(matcher: PairModel, recipe: Recipe) -> None:
    """Puts the published weights into a network's encoder."""
    published = pretrained_encoder.load_published(pretrained_encoder.find_encoder(matcher_settings(recipe).pretrained))
    encoder = matcher.encoder if isinstance(matcher, CrossEncoder) else cast(Matcher, matcher).sentence.encoder
    cast(nn.Module, encoder).load_state_dict(published.state_dict())


@dataclass(frozen=True)
class EnsembleRanker(LogOddsRanker):
    """The log odds of the members' mean probability that a candidate is right, or the mean of their log odds."""

    members: Sequence[LogOddsRanker]
    mean: Mean
    explain: ExplainRanking | None = None

    @property
    def module(self) -> nn.Module:
        """The networks of all members."""
        return nn.ModuleList(member.module for member in self.members)

    def score(self, questions: Sequence[Question]) -> list[Scores]:
        """Log odds."""
        scores = [member.score(questions) for member in self.members]
        average = mean_log_odds if self.mean == "probabilities" else _mean
        return [average(np.stack(rows)) for rows in zip(*scores, strict=True)]


def mean_log_odds(log_odds: Scores) -> Scores:
    """The log odds of the mean probability over the first axis, also where probabilities round to 0 or 1."""
    right, wrong = (np.logaddexp.reduce(-np.logaddexp(0, -sign * log_odds), axis=0) for sign in (1, -1))
    odds: Scores = right - wrong
    return odds


def load_ensemble_ranker(run: RunFolder, recipe: Recipe, device: str = "cpu") -> EnsembleRanker:
    """The members of an ensemble as one ranker."""
    parts = run.parts()
    if not parts:
        raise RunError(f"{run.path}: no members in it, expected one in {run.path / 'member-1'}")
    _refuse_others({str(part.path): part for part in parts.values()})
    members = [cast(LogOddsRanker, load_ranker(part, part.recipe(), device)) for part in parts.values()]
    explanations = [member.explain for member in members if member.explain is not None]
    mean = cast(RankingEnsembleSection, recipe.model).mean
    return EnsembleRanker(members, mean, _mean_explanation(explanations) if explanations else None)


def ensemble_rankers(runs: Sequence[Path], out: Path, mean: Mean, *, force: bool) -> RunFolder:
    """Writes a run of kind ``ranking_ensemble`` that holds copies of its members."""
    folders = open_members(runs)
    _refuse_others(dict(zip(map(str, runs), folders, strict=True)))
    recipe = Recipe.model_validate(folders[0].recipe().model_dump() | {"model": RankingEnsembleSection(mean=mean)})
    with combined_run(dict(zip(MEMBERS, folders, strict=False)), recipe, out, force=force) as run:
        copy_files(folders[0], ("words.vocab",), run.path)
        run.save_metrics({"parameters": count_parameters(load_ensemble_ranker(run, recipe).module)})
    return RunFolder(out)


def _refuse_others(folders: dict[str, RunFolder]) -> None:
    """Refuses members that are no matchers."""
    for name, folder in folders.items():
        model = folder.recipe().model
        if not isinstance(model, MatcherSection):
            raise RunError(f"{name}: a run of kind {model.kind}, expected a matcher as the others of the ensemble")


def _mean_explanation(explanations: Sequence[ExplainRanking]) -> ExplainRanking:
    """The mean weights of those that have the same words as the first."""

    def explain(questions: Sequence[Question]) -> list[WordWeights]:
        return [_mean_weights(rows) for rows in zip(*(each(questions) for each in explanations), strict=True)]

    return explain


def _mean_weights(rows: Sequence[WordWeights]) -> WordWeights:
    words = [word for word, _ in rows[0]]
    weights = [[weight for _, weight in row] for row in rows if [word for word, _ in row] == words]
    return tuple(zip(words, np.mean(weights, 0).tolist(), strict=True))


def _mean(log_odds: Scores) -> Scores:
    mean: Scores = log_odds.mean(0)
    return mean
