"""Training of models that write: pairs to batches, and what is measured on held-out pairs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import DataLoader, Dataset

from antiphon.data.association import associate
from antiphon.data.batch import Batch
from antiphon.data.changing_pairs import ChangingPairs
from antiphon.data.corpus import Corpus, plan_batches
from antiphon.models.transducer import Transducer
from antiphon.recipe.schema import Recipe
from antiphon.runs.build import build_beam, build_model, build_search, task_metrics
from antiphon.runs.run_folder import RunFolder
from antiphon.train.checkpoint import Checkpoint
from antiphon.train.length import Length
from antiphon.train.loop import Fitting
from antiphon.train.module import EpochBatches, GenerationTraining, Numbers, Validation, optimisation_of
from antiphon.train.prepare import Prepared, Say, encoded_dev_pairs, prepare, prepare_again
from antiphon.train.rule_weight import weigh_rules


@dataclass(frozen=True)
class GenerationTask:
    """A model that learns to write targets for sources."""

    recipe: Recipe
    prepared: Prepared

    @classmethod
    def prepare(cls, recipe: Recipe, run: RunFolder, say: Say) -> "GenerationTask":
        """The task with its data in a new run folder."""
        prepared = prepare(recipe, run, say)
        return cls(prepared.recipe, prepared)

    @classmethod
    def resume(cls, recipe: Recipe, run: RunFolder, say: Say) -> "GenerationTask":
        """The task of a run folder that is there already."""
        return cls(recipe, prepare_again(recipe, run, say))

    @property
    def updates_per_pass(self) -> int:
        """Batches of a pass over the training pairs; other orders may have a few more or fewer."""
        return len(self._plan_pass(np.random.default_rng([self.recipe.train.seed, 0])))

    @property
    def target_size(self) -> int:
        """Tokens of the target vocabulary."""
        return len(self.prepared.codec.target.vocab)

    def fitting(self, run: RunFolder, checkpoint: Checkpoint | None) -> Fitting:
        """The model, its training batches and its dev batches."""
        settings, corpus = self.recipe.train, self.prepared.train
        dev_plan = _plan_dev(self.prepared.dev, settings.max_batch_cells)
        module = self._module(dev_plan, checkpoint)
        batches = EpochBatches(
            self._batch(module.model),
            self._plan_pass,
            seed=settings.seed,
            epoch=lambda: module.epoch,
            passes=Length.of(settings).passes,
        )
        dev_batches = DataLoader(
            cast(Dataset[Batch], self.prepared.dev), sampler=dev_plan, batch_size=None, generator=torch.Generator()
        )
        return Fitting(module, batches, dev_batches, (corpus.source_lengths, corpus.target_lengths), Batch.sample)

    def _batch(self, model: nn.Module) -> Callable[[Numbers, Numbers], Batch]:
        """What makes the batches to learn from."""
        corpus, share = self.prepared.train, self.recipe.train.hallucination or 0.0
        if isinstance(model, Transducer) and model.copies:
            return ChangingPairs(corpus, model.counterparts.numpy(), share).batch
        return lambda numbers, _: corpus.batch(numbers)

    def finish(self, run: RunFolder, new: RunFolder, device: str) -> dict[str, float]:
        """Leaves suffix rules beside the weights, where they help; what both get right on dev."""
        return weigh_rules(self.recipe, run, new, device)

    def _plan_pass(self, order: np.random.Generator) -> list[NDArray[np.int64]]:
        settings, corpus = self.recipe.train, self.prepared.train
        return plan_batches(
            corpus.source_lengths,
            corpus.target_lengths,
            batch_size=settings.batch_size,
            max_cells=settings.max_batch_cells,
            order=order,
        )

    def _module(self, dev_plan: list[NDArray[np.int64]], checkpoint: Checkpoint | None) -> GenerationTraining:
        recipe, codec = self.recipe, self.prepared.codec
        written, read = (
            int(lengths.sum()) for lengths in (self.prepared.train.target_lengths, self.prepared.train.source_lengths)
        )
        model = build_model(recipe.model, codec, emit_probability=written / (written + read))
        if isinstance(model, Transducer) and recipe.model.tie == "associated":
            sizes = len(codec.source.vocab), len(codec.target.vocab)
            model.counterparts.copy_(torch.from_numpy(associate(self.prepared.train, *sizes)))
        metric = recipe.train.dev_metric
        validation = Validation(
            metric,
            codec,
            build_beam(recipe.search, beam=recipe.train.dev_beam),
            build_search(recipe),
            task_metrics(recipe.data),
            dev_plan,
            () if metric == "perplexity" else encoded_dev_pairs(recipe, codec),
        )
        return GenerationTraining(model, optimisation_of(recipe.train), validation, recipe.train.batch_size, checkpoint)


def _plan_dev(dev: Corpus, max_cells: int) -> list[NDArray[np.int64]]:
    return plan_batches(dev.source_lengths, dev.target_lengths, batch_size=64, max_cells=max_cells)
