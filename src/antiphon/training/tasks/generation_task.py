"""Training of models that generate targets for sources."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import nn

from antiphon.data.augmentation import AugmentedPairs, find_counterparts
from antiphon.data.batch import Batch
from antiphon.models.transducer import Transducer
from antiphon.recipe.schema import Recipe
from antiphon.runs.build import build_beam, build_model, build_search, task_metrics
from antiphon.runs.run_folder import RunFolder
from antiphon.terminal import Say
from antiphon.torch_free.batch import plan_batches
from antiphon.training.data.epoch_batches import EpochBatches, Indices
from antiphon.training.data.prepare import Prepared, encoded_dev_pairs, prepare, prepare_again
from antiphon.training.step.step import negative_log_likelihood, smoothed_loss
from antiphon.training.tasks.generation_validation import GenerationValidation, OutputMetrics
from antiphon.training.tasks.rule_weight import check_rule_weight, weigh_rules
from antiphon.training.training_length import TrainingLength
from antiphon.training.training_setup import InMicroBatches, TrainingSetup

_DEV_BATCH_SIZE = 64


@dataclass(frozen=True)
class GenerationTask:
    """A model that learns to generate targets for sources."""

    recipe: Recipe
    prepared: Prepared

    @classmethod
    def prepare(cls, recipe: Recipe, run: RunFolder, say: Say) -> "GenerationTask":
        """The task with its data in a new run folder."""
        prepared = prepare(recipe, run, say)
        check_rule_weight(prepared.recipe, prepared.codec)
        return cls(prepared.recipe, prepared)

    @classmethod
    def resume(cls, recipe: Recipe, run: RunFolder, say: Say) -> "GenerationTask":
        """The task of an existing run folder."""
        return cls(recipe, prepare_again(recipe, run, say))

    @property
    def updates_per_pass(self) -> int:
        """Number of batches in a pass over the training pairs; other orders may have a few more or fewer."""
        return len(self._plan_pass(np.random.default_rng([self.recipe.train.seed, 0])))

    @property
    def target_size(self) -> int:
        """Tokens of the target vocabulary."""
        return len(self.prepared.codec.target.vocab)

    def setup(self, run: RunFolder, *, is_new: bool) -> TrainingSetup:
        """The model, its training batches and its validation."""
        settings, corpus = self.recipe.train, self.prepared.train
        model = self._model()
        batches = EpochBatches(
            self._loader(model), self._plan_pass, seed=settings.seed, passes=TrainingLength.of(settings).passes
        )
        return TrainingSetup(
            model,
            smoothed_loss(settings.label_smoothing) if settings.label_smoothing else negative_log_likelihood,
            batches,
            self._validation(settings.dev_beam),
            (corpus.source_lengths, corpus.target_lengths),
            Batch.sample,
            uses_cuda_graphs=True,
            dev_pairs=len(self.prepared.dev),
            validate_best=self._validate_best,
        )

    def _loader(self, model: nn.Module) -> Callable[[Indices, Indices], Batch]:
        """A function that makes training batches."""
        corpus, share = self.prepared.train, self.recipe.train.hallucination or 0.0
        if isinstance(model, Transducer) and (model.copies_unknown or model.copies_words):
            codec = self.prepared.codec
            return AugmentedPairs(corpus, find_counterparts(codec.source.vocab, codec.target.vocab), share).batch
        return lambda indices, _: corpus.batch(indices)

    def finish(self, run: RunFolder, new: RunFolder, device: str) -> dict[str, float]:
        """Saves suffix rules beside the weights where they help; returns the dev accuracy of both."""
        return weigh_rules(self.recipe, run, new, device)

    def _plan_pass(self, order: np.random.Generator) -> list[Indices]:
        settings, corpus = self.recipe.train, self.prepared.train
        return plan_batches(
            corpus.source_lengths,
            corpus.target_lengths,
            batch_size=settings.batch_size,
            max_cells=settings.max_batch_cells,
            order=order,
        )

    def _model(self) -> nn.Module:
        """The model with initial weights."""
        recipe, codec = self.recipe, self.prepared.codec
        written, read = (
            int(lengths.sum()) for lengths in (self.prepared.train.target_lengths, self.prepared.train.source_lengths)
        )
        return build_model(recipe.model, codec, emit_probability=written / (written + read))

    def _validate_best(self, model: nn.Module, in_micro_batches: InMicroBatches) -> dict[str, float]:
        """The dev metrics of outputs with the beam of ``evaluate``, and the beam that epochs were validated with."""
        dev_beam, beam = self.recipe.train.dev_beam, self.recipe.search.beam
        validation = self._validation(beam)
        if validation.outputs is None:
            return {}
        metrics = validation(model, in_micro_batches).metrics if beam != dev_beam else {}
        found = {f"{name}_beam_{beam}": value for name, value in metrics.items() if name != "perplexity"}
        return {"beam": dev_beam, **found}

    def _validation(self, beam_size: int) -> GenerationValidation:
        """The validation, with a search for outputs where the dev metric needs them."""
        recipe, codec, dev = self.recipe, self.prepared.codec, self.prepared.dev
        search, outputs = build_search(recipe), None
        if recipe.train.dev_metric != "perplexity" and search is not None:
            beam = build_beam(recipe.search, beam=beam_size)
            names = list(dict.fromkeys([*task_metrics(recipe.data), recipe.train.dev_metric]))
            outputs = OutputMetrics(codec, search, beam, names, encoded_dev_pairs(recipe, codec))
        plan = plan_batches(
            dev.source_lengths, dev.target_lengths, batch_size=_DEV_BATCH_SIZE, max_cells=recipe.train.max_batch_cells
        )
        return GenerationValidation(dev, plan, outputs)
