"""Training for answer selection: questions to batches, MAP on held-out questions, words in common at the end."""

import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import cast

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from antiphon import __version__
from antiphon.config import DataSection, Recipe
from antiphon.data.encoder import ENCODER_FILES, WEIGHTS, find_encoder, read_encoder_config
from antiphon.data.match_batch import MatchBatch, MatchCorpus
from antiphon.data.questions import Question, judgements_of, read_questions, select_questions
from antiphon.data.stop_words import read_stop_words
from antiphon.data.vectors import read_vectors
from antiphon.errors import InputError, RecipeError, count_of
from antiphon.metrics import perplexity
from antiphon.metrics.ranking import rank_measures
from antiphon.models.logistic import Logistic
from antiphon.models.matcher import Matcher
from antiphon.models.overlap import Overlap
from antiphon.nn.bert import PretrainedSentence, bert_weights
from antiphon.ranker import load_overlap, load_ranker, new_matcher, save_words, text_encoder, word_splitter
from antiphon.run import RunFolder
from antiphon.search.ranking import (
    FEATURES,
    Scores,
    by_question,
    match_log_odds,
    name_scores,
    overlap_counts,
    plan_match_batches,
    with_probability,
)
from antiphon.train.checkpoint import Checkpoint
from antiphon.train.loop import Fitting
from antiphon.train.module import EpochBatches, Mean, Numbers, Optimisation, TrainingModule, optimisation_of
from antiphon.train.prepare import Say


@dataclass(frozen=True)
class WordCounts:
    """Words in common of training and dev pairs, which a logistic regression weighs with a matcher's probability."""

    corpus: MatchCorpus
    train: NDArray[np.float64]
    dev: NDArray[np.float64]
    l2: float

    def fit(self, matcher: Matcher) -> Logistic:
        """The regression on the training pairs."""
        features = with_probability(self.train, match_log_odds(matcher, self.corpus))
        return Logistic.fit(FEATURES, features, self.corpus.labels, self.l2)

    def add(self, matcher: Matcher, dev_log_odds: Scores) -> Scores:
        """The log odds of the dev pairs once words in common are weighed too."""
        return self.fit(matcher).log_odds(with_probability(self.dev, dev_log_odds))


class MatchingTraining(TrainingModule):
    """Training of a matcher: the cross entropy of right and wrong candidates is made small.

    With ``counts``, held-out questions are ranked as the finished run will rank them: with words in common.
    """

    def __init__(
        self,
        model: Matcher,
        optimisation: Optimisation,
        dev: list[Question],
        dev_order: Numbers,
        counts: WordCounts | None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        super().__init__(model, optimisation, checkpoint)
        self.dev, self.dev_order, self.counts = dev, dev_order, counts
        self.dev_log_odds: list[Tensor] = []

    def losses(self, batch: MatchBatch) -> Tensor:
        """``-log p(label)`` of each pair."""
        return cast(Matcher, self.model).cross_entropy(batch)

    def on_validation_epoch_start(self) -> None:
        """Forgets the validation before."""
        self.dev_loss = Mean()
        self.dev_log_odds = []

    def validation_step(self, batch: MatchBatch, _: int) -> None:
        """Adds a batch to what is measured."""
        log_odds: Tensor = self.kept_model(batch)
        losses = torch.nn.functional.binary_cross_entropy_with_logits(log_odds, batch.labels, reduction="sum")
        self.dev_loss.add(losses, len(log_odds))
        self.dev_log_odds.append(log_odds.double().cpu())

    def on_validation_epoch_end(self) -> None:
        """Ranks the held-out questions."""
        log_odds = np.zeros(len(self.dev_order))
        log_odds[self.dev_order] = torch.cat(self.dev_log_odds).numpy()
        measured = {"": dev_metrics(self.dev, log_odds)}
        if self.counts is not None:
            combined = self.counts.add(cast(Matcher, self.kept_model), log_odds)
            measured = {"": dev_metrics(self.dev, combined), "network_": measured[""]}
        self.dev_metrics = {prefix + name: value for prefix, found in measured.items() for name, value in found.items()}
        self.dev_metrics["perplexity"] = perplexity(-self.dev_loss.value, 1).value


@dataclass(frozen=True)
class MatchingTask:
    """A matcher that learns which sentences answer which questions."""

    recipe: Recipe
    train: list[Question]
    dev: list[Question]

    @classmethod
    def prepare(cls, recipe: Recipe, run: RunFolder, say: Say) -> "MatchingTask":
        """The task with its words, vectors and word frequencies in a new run folder."""
        task = cls.resume(recipe, run, say)
        if recipe.model.sentence == "pretrained":
            _copy_encoder(recipe, run)
        else:
            say(_copy_vectors(recipe, run, [*task.train, *task.dev]))
        if recipe.model.overlap:
            _learn_overlap(recipe.data, task.train).save(run.overlap)
        run.save_recipe(recipe)
        return task

    @classmethod
    def resume(cls, recipe: Recipe, run: RunFolder, say: Say) -> "MatchingTask":
        """The task of a run folder that is there already."""
        return cls(recipe, training_questions(recipe.data, say), dev_questions(recipe.data, say))

    @property
    def target_size(self) -> int:
        """Units of the sentence vectors."""
        return self.recipe.model.hidden_size

    def fitting(self, run: RunFolder, checkpoint: Checkpoint | None) -> Fitting:
        """The matcher, its training batches and its dev batches."""
        settings, encode = self.recipe.train, text_encoder(run, self.recipe)
        train, dev = (MatchCorpus.of(questions, encode) for questions in (self.train, self.dev))
        dev_plan = plan_match_batches(dev, 256)
        matcher = new_matcher(run, self.recipe)
        if self.recipe.model.sentence == "pretrained" and checkpoint is None:
            _load_encoder(matcher, self.recipe)
        counts = self._counts(run, train) if self.recipe.model.overlap else None
        module = MatchingTraining(
            matcher, optimisation_of(settings), self.dev, np.concatenate(dev_plan), counts, checkpoint
        )
        batches = EpochBatches(
            train.batch,
            lambda order: plan_match_batches(train, settings.batch_size, order),
            seed=settings.seed,
            epoch=lambda: module.epoch,
        )
        loader = DataLoader(
            cast(Dataset[MatchBatch], dev), sampler=dev_plan, batch_size=None, generator=torch.Generator()
        )
        return Fitting(module, batches, loader)

    def finish(self, run: RunFolder) -> None:
        """With ``model.overlap``, leaves the logistic regression of the best weights."""
        if self.recipe.model.overlap:
            matcher = new_matcher(run, self.recipe)
            run.fill(matcher)
            corpus = MatchCorpus.of(self.train, text_encoder(run, self.recipe))
            self._counts(run, corpus).fit(matcher).save(run.logistic)

    def _counts(self, run: RunFolder, corpus: MatchCorpus) -> WordCounts:
        overlap, words = load_overlap(run), word_splitter(self.recipe.data)
        train, dev = (overlap_counts(overlap, words, questions) for questions in (self.train, self.dev))
        return WordCounts(corpus, train, dev, self.recipe.model.overlap_l2)


def train_overlap(recipe: Recipe, run: RunFolder, say: Say) -> None:
    """Counts the words of the training sentences and leaves a baseline in the run folder."""
    train, dev = training_questions(recipe.data, say), dev_questions(recipe.data, say)
    started = time.monotonic()
    overlap = _learn_overlap(recipe.data, train)
    seconds = time.monotonic() - started
    overlap.save(run.overlap)
    run.save_recipe(recipe)
    metrics = dev_metrics(dev, np.concatenate(load_ranker(run, recipe).score(dev)))
    run.save_metrics(
        {
            "best_epoch": 1,
            "epochs": 1,
            **{f"dev_{name}": value for name, value in metrics.items()},
            "parameters": len(overlap.document_frequency),
            "training_seconds": round(seconds, 1),
            "pairs_per_second": round(overlap.sentences / max(seconds, 1e-9), 1),
            "seed": recipe.train.seed,
            "date": date.today().isoformat(),
            "antiphon": __version__,
        }
    )


def training_questions(data: DataSection, say: Say) -> list[Question]:
    """The questions to learn from; both right and wrong candidates are needed."""
    questions = _read(data, "train", say)
    labels = {answer.label for question in questions for answer in question.answers}
    if len(labels) < 2:
        raise InputError(f"{data.train}: every candidate has label {labels.pop()}, expected both 0 and 1")
    say(f"train: {count_of(len(questions), 'question')}, {count_of(_pairs(questions), 'pair')}")
    return questions


def dev_questions(data: DataSection, say: Say) -> list[Question]:
    """The held-out questions whose ranking can be right or wrong: those with both kinds of candidates."""
    questions = select_questions(_read(data, "dev", say), "mixed")
    if not questions:
        raise InputError(f"{data.dev}: no question has both a right and a wrong candidate, expected at least one")
    counted = count_of(len(questions), "question"), count_of(_pairs(questions), "pair")
    say(f"dev: {counted[0]} with right and wrong candidates, {counted[1]}")
    return questions


def dev_metrics(questions: list[Question], scores: Scores) -> dict[str, float]:
    """Every ranking measure of held-out questions, given the scores of all their candidates."""
    rankings = name_scores(by_question(scores, questions), questions)
    measured = rank_measures(judgements_of(questions), rankings)
    return {name: shares.score().value for name, shares in measured.items()}


def _read(data: DataSection, name: str, say: Say) -> list[Question]:
    path = getattr(data, name)
    if path is None:
        raise RecipeError(f"data.{name}: unset, expected a file of questions; give one with --set data.{name}=FILE")
    if isinstance(path, tuple):
        raise RecipeError(f"data.{name}: two files, expected one file of questions and candidates")
    return read_questions(path, say, labelled=True)


def _pairs(questions: Iterable[Question]) -> int:
    return sum(len(question.answers) for question in questions)


def _learn_overlap(data: DataSection, questions: Iterable[Question]) -> Overlap:
    words = word_splitter(data)
    return Overlap.learn(
        (words(answer.text) for question in questions for answer in question.answers), read_stop_words()
    )


def _copy_vectors(recipe: Recipe, run: RunFolder, questions: Iterable[Question]) -> str:
    """Puts the vectors of all words of the questions into the run, and says how many of the words have one."""
    data, words = recipe.data, word_splitter(recipe.data)
    if data.vectors is None:
        raise RecipeError("data.vectors: unset, expected a file of word vectors; give one with --set data.vectors=FILE")
    texts = (text for question in questions for text in (question.text, *(answer.text for answer in question.answers)))
    wanted = {word for text in texts for word in words(text)}
    known = read_vectors(data.vectors, wanted, data.more_words)
    save_words(run, known)
    found = len(wanted.intersection(known.words))
    return f"vectors: {found:,} of {count_of(len(wanted), 'word')} known, {len(known.words) - found:,} more kept"


def _copy_encoder(recipe: Recipe, run: RunFolder) -> None:
    folder = find_encoder(recipe.data.encoder)
    read_encoder_config(folder)
    run.encoder.mkdir()
    for name in ENCODER_FILES:
        shutil.copyfile(folder / name, run.encoder / name)


def _load_encoder(matcher: Matcher, recipe: Recipe) -> None:
    """Puts the published weights into a matcher's encoder."""
    folder = find_encoder(recipe.data.encoder)
    sentence = cast(PretrainedSentence, matcher.sentence)
    try:
        sentence.bert.load_state_dict(bert_weights(safetensors.torch.load_file(folder / WEIGHTS)))
    except (KeyError, RuntimeError, safetensors.SafetensorError) as error:
        raise InputError(f"{folder / WEIGHTS}: not the weights of its config.json ({error})") from None
