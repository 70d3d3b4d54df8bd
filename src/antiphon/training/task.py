"""A training task hands model, loss, batches and validation to the loop; that of models which write targets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphon.data.batch import Batch
from antiphon.data.corpus import Corpus
from antiphon.decode.alignments import add_alignments
from antiphon.device import choose_threads
from antiphon.metrics.output_metrics import Outputs, perplexity, score_outputs
from antiphon.models.transducer import Transducer
from antiphon.recipe.kinds import KINDS
from antiphon.recipe.schema import Recipe
from antiphon.runs.build import build_beam, build_model, build_search, task_metrics
from antiphon.runs.run_folder import RunFolder
from antiphon.terminal import Say, count_of
from antiphon.torch_free.batch import plan_batches
from antiphon.torch_free.codec import PairCodec
from antiphon.torch_free.hypothesis import BeamSettings, Hypothesis, Search, have_unknown
from antiphon.torch_free.readers import Pair
from antiphon.training.augmentation import AugmentedPairs, HiddenSources, find_counterparts
from antiphon.training.distributed import BatchShard, all_gather, local_world_size, rank, shard_indices, world_size
from antiphon.training.optimisation import TrainingLength
from antiphon.training.prepare import Prepared, encoded_dev_pairs, facts_of, plan_pass, prepare, prepare_again
from antiphon.training.resolution import Facts, Resolution
from antiphon.training.state import RunningMean
from antiphon.training.step import LossFunction, negative_log_likelihood, smoothed_loss
from antiphon.training.suffix_rules import check_rule_weight, weigh_rules

Indices = NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True)
class EpochBatches:
    """The training batches; an epoch is ``passes`` passes over the pairs, each in its own order.

    ``load`` makes a batch of the pairs with these indices, given a random seed for each of them. ``plan_pass`` gives
    the indices of the pairs of every batch of a pass. ``groups`` has the group of every pair, where pairs of a batch
    that are in one group have to be computed by one process.
    """

    load: Callable[[Indices, Indices], Any]
    plan_pass: Callable[[np.random.Generator], list[Indices]]
    seed: int
    passes: int = 1
    groups: Indices | None = None

    def plan(self, epoch: int) -> list[Indices]:
        """The indices of the pairs of every batch of an epoch."""
        order = np.random.default_rng([self.seed, epoch])
        return [indices for _ in range(self.passes) for indices in self.plan_pass(order)]

    def shard(self, epoch: int, index: int, indices: Indices) -> BatchShard:
        """Batch number ``index`` of an epoch, or this process's shard of it; ``indices`` are as in the plan."""
        random = np.random.default_rng([self.seed, epoch, index])
        seeds = random.integers(2**63, size=len(indices))
        own, pairs = shard_indices(indices, self.groups)
        return BatchShard(self.load(indices[own], seeds[own]), pairs, len(indices))


class DevResult(NamedTuple):
    """The mean loss on the dev set, and the metrics.

    ``save_with_weights`` writes what the model needs beside its weights, if anything; called if they are the best.
    """

    loss: float
    metrics: dict[str, float]
    save_with_weights: Callable[[RunFolder], None] | None = None


class InMicroBatches(Protocol):
    """Applies a function to a batch on the device, or to micro-batches of it where memory runs out."""

    def __call__(self, batch: Any, compute: Callable[[Any], T], /) -> list[T]:
        """The result for each micro-batch."""
        ...


@dataclass(frozen=True)
class TrainingSetup:
    """A model, its loss, the batches that it learns from, and its validation.

    ``lengths`` are those of both sides of every training pair. ``uses_cuda_graphs`` tells whether steps can be captured
    on a GPU.
    ``dev_pairs`` is the size of the dev set. ``validate_best`` gives further dev metrics of the best weights, once
    training has ended.
    """

    model: nn.Module
    loss: LossFunction
    batches: EpochBatches
    validate: Callable[[nn.Module, InMicroBatches], DevResult]
    lengths: tuple[Indices, Indices]
    uses_cuda_graphs: bool = False
    dev_pairs: int = 0
    validate_best: Callable[[nn.Module, InMicroBatches], Mapping[str, float]] | None = None

    @property
    def pairs(self) -> int:
        """The number of training pairs."""
        return len(self.lengths[0])

    def describe_length(self, length: TrainingLength, epoch: int = 0) -> str:
        """The length of training as text, with the number of updates of an epoch."""
        passes = "each a pass" if length.passes == 1 else f"each {length.passes} passes"
        updates, pairs = count_of(len(self.batches.plan(epoch)), "update"), count_of(self.pairs, "pair")
        epochs = count_of(length.max_epochs, "epoch")
        return f"{epochs} of {updates} ({passes} over {pairs}), patience {length.patience}"


class Task(Protocol):
    """A training task, a dataclass: it reads data, builds the model, and completes the run once training has ended."""

    @classmethod
    def prepare(cls, recipe: Recipe, run: RunFolder, say: Say) -> "Task":
        """The task with its data in a new run folder."""
        ...

    @classmethod
    def resume(cls, recipe: Recipe, run: RunFolder, say: Say) -> "Task":
        """The task of an existing run folder."""
        ...

    @property
    def settings(self) -> Resolution:
        """All settings, also those that the data decide."""
        ...

    @property
    def facts(self) -> Facts:
        """What the training data are like."""
        ...

    @property
    def target_size(self) -> int:
        """Width of the output layer, which decides whether several threads are faster."""
        ...

    def setup(self, run: RunFolder, *, is_new: bool) -> TrainingSetup:
        """The model with initial weights, and its batches; the weights of a run that is not new are loaded later."""
        ...

    def finish(self, run: RunFolder, new: RunFolder, device: str) -> Mapping[str, float]:
        """Writes into ``new`` what follows from the best weights of ``run``, and returns further dev metrics."""
        ...


def train_by_counting(recipe: Recipe, run: RunFolder, say: Say) -> bool:
    """Trains a kind that learns by counting, without epochs, into the folder; False for other kinds."""
    count = KINDS[recipe.model.kind].count
    if count is not None:
        count()(recipe, run, say)
    return count is not None


def prepare_task(recipe: Recipe, run: RunFolder, say: Say) -> Task:
    """The task with its data in a new run folder, and the recipe with all settings in it."""
    task = _task_of(recipe).prepare(recipe, run, say)
    run.save_recipe(task.settings.recipe)
    return task


def resume_task(recipe: Recipe, run: RunFolder, say: Say) -> Task:
    """The task of an existing run folder."""
    return _task_of(recipe).resume(recipe, run, say)


def choose_threads_of(task: Task, threads: int | None) -> int:
    """The number of threads asked for, or one that suits the model of a task."""
    recipe = task.settings.recipe
    return threads or choose_threads(recipe.train.batch_size, recipe.model.width, task.target_size, local_world_size())


def _task_of(recipe: Recipe) -> type[Task]:
    task = KINDS[recipe.model.kind].task
    assert task is not None
    return task()


class OutputMetrics(NamedTuple):
    """How outputs are searched for and scored; ``pairs`` has the text of every dev pair."""

    codec: PairCodec
    search: Search
    beam: BeamSettings
    metrics: Sequence[str]
    pairs: Sequence[Pair]


class _Measured(NamedTuple):
    """The summed loss of a micro-batch, its number of target tokens, and its outputs where they are searched for."""

    loss: Tensor
    tokens: int
    outputs: list[list[Hypothesis]]


@dataclass(frozen=True)
class GenerationValidation:
    """The perplexity of dev pairs and, with ``outputs``, the metrics of what is generated for them.

    ``plan`` has the indices of the pairs of every batch. Several processes take turns.
    """

    dev: Corpus
    plan: Sequence[Indices]
    outputs: OutputMetrics | None

    def __call__(self, model: nn.Module, in_micro_batches: InMicroBatches) -> DevResult:
        """The dev loss and metrics of a model."""
        loss, written = RunningMean(), list[tuple[int, list[str]]]()
        for indices in self.plan[rank() :: world_size()]:
            hypotheses: list[list[Hypothesis]] = []
            for part in in_micro_batches(self.dev.batch(indices), lambda batch: self._measure(model, batch)):
                loss.add(part.loss, part.tokens)
                hypotheses += part.outputs
            written += [(pair, self._decode(pair, found)) for pair, found in zip(indices.tolist(), hypotheses)]  # noqa: B905
        loss.all_reduce()
        return DevResult(loss.value, {"perplexity": perplexity(-loss.value, 1).value, **self._score(written)})

    def _measure(self, model: nn.Module, batch: Batch) -> _Measured:
        loss, tokens = -model(batch).sum(), int(batch.target_lengths.sum())
        if self.outputs is None:
            return _Measured(loss, tokens, [])
        found = self.outputs.search(model, batch, self.outputs.beam)
        if have_unknown(found):
            found = add_alignments(model, batch, found)
        return _Measured(loss, tokens, found)

    def _decode(self, pair: int, hypotheses: list[Hypothesis]) -> list[str]:
        """The tokens of the best output, as prediction writes them."""
        assert self.outputs is not None
        if not hypotheses:
            return []
        codec, best = self.outputs.codec, hypotheses[0]
        source = codec.source.tokens(self.outputs.pairs[pair].source)
        return codec.decode_copied(best.tokens, best.alignment, source)

    def _without_runaway(self, tokens: list[str], reference: str) -> list[str]:
        """An output, or nothing instead of one more than twice as long as its reference.

        So its edits are those of a missing output at most, and a single endless output cannot choose the epoch.
        """
        assert self.outputs is not None
        return tokens if len(tokens) <= 2 * len(self.outputs.codec.target.tokens(reference)) else []

    def _score(self, written: Sequence[tuple[int, list[str]]]) -> dict[str, float]:
        """The metrics of the outputs of all processes."""
        if self.outputs is None:
            return {}
        found, pairs = all_gather(written), self.outputs.pairs
        references = [[pairs[index].target] for index, _ in found]
        sources = [self.outputs.codec.source.tokens(pairs[index].source) for index, _ in found]
        ended = [self._without_runaway(tokens, pairs[index].target) for index, tokens in found]
        outputs = Outputs.of(self.outputs.codec.target, ended, references, sources)
        return {name: score.value for name, score in score_outputs(outputs, self.outputs.metrics).items()}


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
        return build_model(recipe.model, codec, write_probability=written / (written + read))

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
