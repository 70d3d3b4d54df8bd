"""Training for answer selection."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil, log
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphon.exceptions import InputError, RecipeError, check_installed
from antiphon.metrics.output_metrics import Rankings, compute_ranking_metrics, perplexity
from antiphon.ranking import rankers
from antiphon.ranking.matchers import ListwiseLoss, Matcher
from antiphon.ranking.overlap import Logistic, Overlap, read_stop_words
from antiphon.ranking.question_batches import MatchCorpus, QuestionBatch, plan_question_batches
from antiphon.ranking.questions import (
    Question,
    dev_questions,
    judgements_of,
    read_questions,
    select_questions,
    training_questions,
)
from antiphon.ranking.rankers import Scores, matcher_settings
from antiphon.recipe.model_sections import OverlapSection
from antiphon.recipe.schema import Recipe
from antiphon.recipe.sections import DataSection
from antiphon.runs.run_folder import RunFolder
from antiphon.terminal import Say, silent
from antiphon.training.optimisation import TrainingLength
from antiphon.training.resolution import Facts, Resolution, resolve
from antiphon.training.state import RunningMean, Summary
from antiphon.training.task import DevResult, EpochBatches, Indices, InMicroBatches, TrainingSetup

_DEV_BATCH_SIZE = 256


@dataclass(frozen=True)
class WordCounts:
    """Word overlap of training and dev pairs, which a logistic regression combines with what a matcher says."""

    corpus: MatchCorpus
    train: NDArray[np.float64]
    dev: NDArray[np.float64]
    feature: rankers.LogisticFeature
    l2: float

    def fit(self, matcher: Matcher) -> Logistic:
        """The regression on the training pairs."""
        features = rankers.pair_features(self.train, rankers.match_log_odds(matcher, self.corpus), self.feature)
        return Logistic.fit(rankers.feature_names(self.feature), features, self.corpus.labels, self.l2)


@dataclass(frozen=True)
class MatchingValidation:
    """Perplexity, and the metrics of the ranking of dev questions.

    ``plan`` has the indices of the pairs of every batch. With ``counts``, questions are ranked as the finished run will
    rank them: with word overlap.
    """

    questions: list[Question]
    corpus: MatchCorpus
    plan: list[Indices]
    counts: WordCounts | None

    def __call__(self, model: nn.Module, in_micro_batches: InMicroBatches) -> DevResult:
        """Dev loss and metrics; with word overlap, also the metrics of the network alone."""
        matcher = cast(Matcher, model)
        log_odds, loss = self._log_odds_and_loss(matcher, in_micro_batches)
        alone, likelihood = self._metrics(log_odds), {"perplexity": perplexity(-loss, 1).value}
        if self.counts is None:
            return DevResult(loss, alone | likelihood)
        logistic = self.counts.fit(matcher)
        features = rankers.pair_features(self.counts.dev, log_odds, self.counts.feature)
        combined = self._metrics(logistic.log_odds(features))
        network = {f"network_{name}": value for name, value in alone.items()}
        return DevResult(loss, combined | network | likelihood, lambda run: logistic.save(run.logistic))

    def _log_odds_and_loss(self, matcher: Matcher, in_micro_batches: InMicroBatches) -> tuple[Scores, float]:
        """The log odds of every dev pair, and the mean loss."""
        log_odds, loss = np.zeros(sum(map(len, self.plan))), RunningMean()
        for indices in self.plan:
            parts = in_micro_batches(self.corpus.batch(indices), lambda batch: _log_odds_and_loss(matcher, batch))
            for _, total in parts:
                loss.add(total, 0)
            loss.count += len(indices)
            log_odds[indices] = torch.cat([odds for odds, _ in parts]).double().cpu().numpy()
        return log_odds, loss.value

    def _metrics(self, scores: Scores) -> dict[str, float]:
        """The ranking metrics, given the scores of all candidates."""
        return ranking_values(
            self.questions, rankers.name_scores(rankers.by_question(scores, self.questions), self.questions)
        )


def _log_odds_and_loss(matcher: Matcher, batch: Any) -> tuple[Tensor, Tensor]:
    log_odds = matcher(batch)
    return log_odds, torch.nn.functional.binary_cross_entropy_with_logits(log_odds, batch.labels, reduction="sum")


@dataclass(frozen=True)
class MatchingTask:
    """A matcher that learns which sentences answer which questions."""

    settings: Resolution
    train: list[Question]
    dev: list[Question]

    @classmethod
    def prepare(cls, recipe: Recipe, run: RunFolder, say: Say) -> "MatchingTask":
        """The task with its words, vectors and word frequencies in a new run folder."""
        task = cls.resume(recipe, run, say)
        say(rankers.copy_vectors(recipe, run, [*task.train, *task.dev]))
        if matcher_settings(recipe).overlap:
            learn_overlap(recipe.data, task.train).save(run.overlap)
        return replace(task, settings=resolve(task.settings, task.facts))

    @classmethod
    def resume(cls, recipe: Recipe, run: RunFolder, say: Say) -> "MatchingTask":
        """The task of an existing run folder."""
        train, dev = training_questions(recipe.data, say), dev_questions(recipe.data, say)
        if recipe.train.listwise_weight and not select_questions(train, "mixed"):
            raise InputError(
                f"train.listwise_weight = {recipe.train.listwise_weight:g}: no question of {recipe.data.train} has "
                "both right and wrong candidates, expected some to compare; set it to 0"
            )
        return cls(Resolution(recipe), train, dev)

    @property
    def recipe(self) -> Recipe:
        """All settings."""
        return self.settings.recipe

    @property
    def facts(self) -> Facts:
        """About as many batches as show all candidates once; more if sentences are long or questions stay whole."""
        pairs = sum(len(question.answers) for question in self.train)
        return Facts(pairs, ceil(pairs / self.recipe.train.batch_size))

    @property
    def target_size(self) -> int:
        """Units of the sentence vectors."""
        return self.recipe.model.width

    def setup(self, run: RunFolder, *, is_new: bool) -> TrainingSetup:
        """The matcher, its training batches and its validation."""
        train, dev = map(rankers.question_encoder(run, self.recipe), (self.train, self.dev))
        matcher = rankers.new_matcher(run, self.recipe)
        if is_new and matcher_settings(self.recipe).initial_weights != "random":
            right = float(train.labels.mean())
            matcher.start_at(log(right / (1 - right)))
        counts = self._counts(run, train) if matcher_settings(self.recipe).overlap else None
        weight = self.recipe.train.listwise_weight
        return TrainingSetup(
            matcher,
            ListwiseLoss(weight, len(train.labels) / len(self.train)) if weight else Matcher.cross_entropy,
            self._listwise_batches(train) if weight else self._pointwise_batches(train),
            MatchingValidation(self.dev, dev, rankers.plan_match_batches(dev, _DEV_BATCH_SIZE), counts),
            (train.question_lengths, train.sentence_lengths),
        )

    def _pointwise_batches(self, corpus: MatchCorpus) -> EpochBatches:
        """Batches of pairs whose sentences have similar lengths."""
        settings = self.recipe.train
        return EpochBatches(
            lambda indices, _: corpus.batch(indices),
            lambda order: rankers.plan_match_batches(corpus, settings.batch_size, order),
            seed=settings.seed,
            passes=TrainingLength.of(settings).passes,
        )

    def _listwise_batches(self, corpus: MatchCorpus) -> EpochBatches:
        """Batches of whole questions."""
        settings = self.recipe.train
        candidates = np.array([len(question.answers) for question in self.train], np.int64)
        question = np.repeat(np.arange(len(candidates)), candidates)
        return EpochBatches(
            lambda indices, _: QuestionBatch(torch.from_numpy(question[indices]), corpus.batch(indices)),
            lambda order: plan_question_batches(
                candidates,
                corpus.sentence_lengths,
                batch_size=settings.batch_size,
                max_tokens=rankers.MAX_TOKENS,
                order=order,
            ),
            seed=settings.seed,
            passes=TrainingLength.of(settings).passes,
            groups=question,
        )

    def finish(self, run: RunFolder, new: RunFolder, device: str) -> dict[str, float]:
        """Nothing is left to do: the logistic regression is saved with the best weights."""
        return {}

    def _counts(self, run: RunFolder, corpus: MatchCorpus) -> WordCounts:
        overlap, words = rankers.load_overlap(run), rankers.word_splitter(self.recipe.data)
        train, dev = (rankers.overlap_counts(overlap, words, questions) for questions in (self.train, self.dev))
        settings = matcher_settings(self.recipe)
        return WordCounts(corpus, train, dev, settings.overlap_feature, settings.overlap_l2)


def learn_overlap(data: DataSection, questions: Iterable[Question]) -> Overlap:
    """The document frequency of every word in the sentences of the questions."""
    words = rankers.word_splitter(data)
    return Overlap.learn(
        (words(answer.text) for question in questions for answer in question.answers), read_stop_words()
    )


def ranking_values(questions: Sequence[Question], rankings: Rankings) -> dict[str, float]:
    """The value of every ranking metric on questions."""
    metrics = compute_ranking_metrics(judgements_of(questions), rankings)
    return {name: ratio.score().value for name, ratio in metrics.items()}


def check_questions(recipe: Recipe) -> None:
    """Refuses a recipe that ranks where a library is missing, or the test file has no questions to rank."""
    model, test = recipe.model, recipe.data.test
    check_installed("ir_measures", "qa", f"model.kind = {model.kind}")
    if isinstance(model, OverlapSection) and model.baseline == "bm25":
        check_installed("bm25s", "qa", "model.baseline = bm25")
    if isinstance(test, tuple):
        raise RecipeError("data.test: two files, expected one file of questions and candidates")
    if test is not None and not select_questions(read_questions(test, silent, labelled=True), "mixed"):
        raise InputError(f"{test}: no question has both a right and a wrong candidate, expected at least one")


def train_overlap(recipe: Recipe, run: RunFolder, say: Say) -> None:
    """Counts the words of the training sentences and saves a baseline of answer selection in the run folder."""
    train, dev = training_questions(recipe.data, say), dev_questions(recipe.data, say)
    started = time.monotonic()
    overlap = learn_overlap(recipe.data, train)
    seconds = time.monotonic() - started
    overlap.save(run.overlap)
    run.save_recipe(recipe)
    rankings = rankers.rankings_of(rankers.load_ranker(run, recipe), dev)
    scores = ranking_values(dev, rankings)
    summary = Summary(scores, len(overlap.document_frequency), seconds, overlap.sentences / max(seconds, 1e-9))
    summary.save(run, recipe.train.seed)
