"""Training for answer selection: questions to batches, MAP on held-out questions, words in common at the end."""

from dataclasses import dataclass
from math import ceil
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from antiphon.metrics import perplexity
from antiphon.ranking.logistic import Logistic
from antiphon.ranking.matcher import Matcher
from antiphon.ranking.question_batches import MatchBatch, MatchCorpus
from antiphon.ranking.question_files import Question, judgements_of
from antiphon.ranking.rankers import (
    FEATURES,
    Scores,
    by_question,
    match_log_odds,
    name_scores,
    overlap_counts,
    plan_match_batches,
    with_probability,
)
from antiphon.ranking.ranking_metrics import compute_ranking_metrics
from antiphon.ranking.saved_rankers import load_matcher, load_overlap, new_matcher, text_encoder, word_splitter
from antiphon.recipe.schema import Recipe
from antiphon.runs.run_folder import RunFolder
from antiphon.train.checkpoint import Checkpoint
from antiphon.train.length import Length
from antiphon.train.loop import Fitting
from antiphon.train.module import EpochBatches, Numbers, Optimisation, TrainingModule, optimisation_of
from antiphon.train.prepare import Say
from antiphon.train.questions import (
    copy_encoder,
    copy_vectors,
    dev_questions,
    learn_overlap,
    load_encoder,
    training_questions,
)


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
        super().on_validation_epoch_start()
        self.dev_log_odds = []

    def validate(self, batch: MatchBatch, index: int) -> None:
        """Adds a batch to what is measured."""
        log_odds = torch.cat(self.measured(batch, self.kept_model))
        losses = torch.nn.functional.binary_cross_entropy_with_logits(log_odds, batch.labels, reduction="sum")
        self.dev_loss.add(losses, len(log_odds))
        self.dev_log_odds.append(log_odds.double().cpu())

    def measure(self) -> dict[str, float]:
        """Perplexity, and the metrics of the ranking of held-out questions."""
        log_odds = np.zeros(len(self.dev_order))
        log_odds[self.dev_order] = torch.cat(self.dev_log_odds).numpy()
        measured = {"": dev_metrics(self.dev, log_odds)}
        if self.counts is not None:
            combined = self.counts.add(cast(Matcher, self.kept_model), log_odds)
            measured = {"": dev_metrics(self.dev, combined), "network_": measured[""]}
        metrics = {prefix + name: value for prefix, found in measured.items() for name, value in found.items()}
        return metrics | {"perplexity": perplexity(-self.dev_loss.value, 1).value}


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
            copy_encoder(recipe, run)
        else:
            say(copy_vectors(recipe, run, [*task.train, *task.dev]))
        if recipe.model.overlap:
            learn_overlap(recipe.data, task.train).save(run.overlap)
        run.save_recipe(recipe)
        return task

    @classmethod
    def resume(cls, recipe: Recipe, run: RunFolder, say: Say) -> "MatchingTask":
        """The task of a run folder that is there already."""
        return cls(recipe, training_questions(recipe.data, say), dev_questions(recipe.data, say))

    @property
    def updates_per_pass(self) -> int:
        """Batches in which all candidates are seen once, unless sentences are so long that batches are smaller."""
        return ceil(sum(len(question.answers) for question in self.train) / self.recipe.train.batch_size)

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
            load_encoder(matcher, self.recipe)
        counts = self._counts(run, train) if self.recipe.model.overlap else None
        module = MatchingTraining(
            matcher, optimisation_of(settings), self.dev, np.concatenate(dev_plan), counts, checkpoint
        )
        batches = EpochBatches(
            lambda numbers, _: train.batch(numbers),
            lambda order: plan_match_batches(train, settings.batch_size, order),
            seed=settings.seed,
            epoch=lambda: module.epoch,
            passes=Length.of(settings).passes,
        )
        loader = DataLoader(
            cast(Dataset[MatchBatch], dev), sampler=dev_plan, batch_size=None, generator=torch.Generator()
        )
        return Fitting(module, batches, loader, (train.question_lengths, train.sentence_lengths), MatchBatch.sample)

    def finish(self, run: RunFolder, new: RunFolder, device: str) -> dict[str, float]:
        """With ``model.overlap``, leaves the logistic regression of the best weights."""
        if self.recipe.model.overlap:
            corpus = MatchCorpus.of(self.train, text_encoder(run, self.recipe))
            matcher = load_matcher(run, self.recipe).to(device)
            self._counts(run, corpus).fit(matcher).save(new.logistic)
        return {}

    def _counts(self, run: RunFolder, corpus: MatchCorpus) -> WordCounts:
        overlap, words = load_overlap(run), word_splitter(self.recipe.data)
        train, dev = (overlap_counts(overlap, words, questions) for questions in (self.train, self.dev))
        return WordCounts(corpus, train, dev, self.recipe.model.overlap_l2)


def dev_metrics(questions: list[Question], scores: Scores) -> dict[str, float]:
    """Every ranking measure of held-out questions, given the scores of all their candidates."""
    rankings = name_scores(by_question(scores, questions), questions)
    measured = compute_ranking_metrics(judgements_of(questions), rankings)
    return {name: shares.score().value for name, shares in measured.items()}
