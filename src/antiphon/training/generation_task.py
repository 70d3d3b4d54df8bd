"""Training of models that generate targets for sources."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import nn

from antiphon.data.augmentation import AugmentedPairs, HiddenSources, find_counterparts
from antiphon.data.batch import Batch
from antiphon.models.transducer import Transducer
from antiphon.recipe.schema import Recipe
from antiphon.runs.build import build_beam, build_model, build_search, task_metrics
from antiphon.runs.run_folder import RunFolder
from antiphon.terminal import Say
from antiphon.torch_free.batch import plan_batches
from antiphon.training.generation_validation import GenerationValidation, OutputMetrics
from antiphon.training.optimisation import TrainingLength
from antiphon.training.prepare import Prepared, encoded_dev_pairs, facts_of, plan_pass, prepare, prepare_again
from antiphon.training.resolution import Facts, Resolution
from antiphon.training.step import negative_log_likelihood, smoothed_loss
from antiphon.training.suffix_rules import check_rule_weight, weigh_rules
from antiphon.training.task import EpochBatches, Indices, InMicroBatches, TrainingSetup

_DEV_BATCH_SIZE = 64


@dataclass(frozen=True)
class GenerationTask:
    """A model that learns to generate targets for sources."""

    settings: Resolution
    prepared: Prepared

    @classmethod
    def prepare(cls, recipe: Recipe, run: RunFolder, say: Say) -> "GenerationTask":
        """The task with its data in a new run folder."""
        settings, prepared = prepare(recipe, run, say)
        check_rule_weight(settings.recipe, prepared.codec)
        return cls(settings, prepared)

    @classmethod
    def resume(cls, recipe: Recipe, run: RunFolder, say: Say) -> "GenerationTask":
        """The task of an existing run folder."""
        return cls(Resolution(recipe), prepare_again(recipe, run, say))

    @property
    def recipe(self) -> Recipe:
        """All settings."""
        return self.settings.recipe

    @property
    def facts(self) -> Facts:
        """What the training pairs are like."""
        return facts_of(self.recipe, self.prepared.codec, self.prepared.train)

    @property
    def target_size(self) -> int:
        """Tokens of the target vocabulary."""
        return len(self.prepared.codec.target.vocab)

    def setup(self, run: RunFolder, *, is_new: bool) -> TrainingSetup:
        """The model, its training batches and its validation."""
        settings, corpus = self.recipe.train, self.prepared.train
        model = self._model()
        batches = EpochBatches(
            self._loader(model),
            partial(plan_pass, settings, corpus),
            seed=settings.seed,
            passes=TrainingLength.of(settings).passes,
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
        if hidden := self.recipe.train.hidden_sources:
            return HiddenSources(corpus, hidden).batch
        return lambda indices, _: corpus.batch(indices)

    def finish(self, run: RunFolder, new: RunFolder, device: str) -> dict[str, float]:
        """Saves suffix rules beside the weights where they help; returns the dev accuracy of both."""
        return weigh_rules(self.recipe, run, new, device)

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
