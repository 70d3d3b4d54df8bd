"""One training step, one validation, and the optimiser, as Lightning wants them."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import lightning as L
import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import IterableDataset

from antiphon.data.batch import Batch
from antiphon.data.codec import PairCodec
from antiphon.data.corpus import Corpus, plan_batches
from antiphon.kinds import Search, SequenceModel, log_prob
from antiphon.metrics import Outputs, perplexity, score_outputs
from antiphon.search.hypothesis import BeamSettings
from antiphon.train.checkpoint import Checkpoint


class EpochBatches(IterableDataset[Batch]):
    """The batches of one epoch, in an order that the seed and the epoch's number decide."""

    def __init__(self, corpus: Corpus, *, batch_size: int, max_cells: int, seed: int, epoch: Callable[[], int]) -> None:
        self.corpus, self.epoch, self.seed = corpus, epoch, seed
        self.batch_size, self.max_cells = batch_size, max_cells

    def __iter__(self) -> Iterator[Batch]:
        for numbers in plan_batches(
            self.corpus.source_lengths,
            self.corpus.target_lengths,
            batch_size=self.batch_size,
            max_cells=self.max_cells,
            order=np.random.default_rng([self.seed, self.epoch()]),
        ):
            yield self.corpus.batch(numbers)


@dataclass(frozen=True)
class Optimisation:
    """How weights move."""

    learning_rate: float
    final_learning_rate: float
    max_epochs: int
    average: float
    seed: int

    def learning_rate_in(self, epoch: int) -> float:
        """The learning rate of an epoch: from the first to the final one along half a cosine."""
        way = min(1.0, epoch / self.max_epochs)
        share = self.final_learning_rate + (1 - self.final_learning_rate) * 0.5 * (1 + math.cos(math.pi * way))
        return self.learning_rate * share


@dataclass(frozen=True)
class Validation:
    """What is measured after each epoch; outputs are searched for only where the dev metric needs them."""

    metric: str
    codec: PairCodec
    beam: BeamSettings
    search: Search | None
    measures: Sequence[str]

    @property
    def needs_outputs(self) -> bool:
        """Whether the metric looks at outputs rather than at probabilities."""
        return self.metric != "perplexity"


class TrainingModule(L.LightningModule):
    """A model in training: minus the mean log probability of a pair is made small."""

    def __init__(
        self,
        model: nn.Module,
        optimisation: Optimisation,
        validation: Validation,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        super().__init__()
        self.model, self.optimisation, self.validation = model, optimisation, validation
        self.averaged = _running_average(model, optimisation.average)
        self.checkpoint = checkpoint
        if checkpoint is not None:
            self.load_state_dict(checkpoint["module"])
        self.train_loss = _Mean()
        self.dev_loss = _Mean()
        self.dev_outputs: list[tuple[tuple[int, ...], list[int]]] = []
        self.dev_metrics: dict[str, float] = {}

    @property
    def kept_model(self) -> nn.Module:
        """The model that is validated and kept: the running average, if there is one."""
        return self.model if self.averaged is None else self.averaged.module

    @property
    def epoch(self) -> int:
        """The number of this epoch from 0, those before a resume counted."""
        return self.epochs_before + self.current_epoch

    @property
    def epochs_before(self) -> int:
        """How many epochs were done before a resume."""
        return self.checkpoint["epochs"] if self.checkpoint else 0

    def on_train_epoch_start(self) -> None:
        """Gives every epoch its own random numbers and learning rate, so that a resumed run has the same ones."""
        torch.manual_seed(self.optimisation.seed * 1_000_003 + self.epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = self.optimisation.learning_rate_in(self.epoch)
        self.train_loss = _Mean()

    def training_step(self, batch: Batch, _: int) -> Tensor:
        """The loss of a batch."""
        log_probs = cast(SequenceModel, self.model).log_prob(batch)
        self.train_loss.add(-log_probs.detach().sum(), len(log_probs))
        return -log_probs.mean()

    def on_train_batch_end(self, *_: Any) -> None:
        """Moves the running average along."""
        if self.averaged is not None:
            self.averaged.update_parameters(self.model)

    def on_validation_epoch_start(self) -> None:
        """Forgets the validation before."""
        self.dev_loss = _Mean()
        self.dev_outputs = []

    def validation_step(self, batch: Batch, _: int) -> None:
        """Adds a batch to what is measured."""
        self.dev_loss.add(-log_prob(self.kept_model, batch).sum(), int(batch.target_lengths.sum()))
        if self.validation.needs_outputs and self.validation.search is not None:
            found = self.validation.search(self.kept_model, batch, self.validation.beam)
            wanted = batch.target.tolist()
            self.dev_outputs += [(hypotheses[0].tokens, ids) for hypotheses, ids in zip(found, wanted, strict=True)]

    def on_validation_epoch_end(self) -> None:
        """Turns what was added up into metrics."""
        loss = self.dev_loss.value
        self.dev_metrics = {"perplexity": perplexity(-loss, 1).value}
        if self.validation.needs_outputs:
            target = self.validation.codec.target
            predicted, wanted = (
                [target.vocab.decode(ids) for ids in side] for side in zip(*self.dev_outputs, strict=True)
            )
            join = target.tokeniser.join
            outputs = Outputs(
                [join(p) for p in predicted], [[join(w)] for w in wanted], predicted, [[w] for w in wanted]
            )
            scores = score_outputs(outputs, self.validation.measures)
            self.dev_metrics |= {name: score.value for name, score in scores.items()}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam, with the moments of the checkpoint."""
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.Adam(parameters, lr=self.optimisation.learning_rate, fused=True)
        if self.checkpoint is not None:
            self.optimizer.load_state_dict(self.checkpoint["optimiser"])
        return self.optimizer


class _Mean:
    """A mean that is fetched from the device only when it is asked for."""

    def __init__(self) -> None:
        self.total: Tensor | float = 0.0
        self.number = 0

    def add(self, total: Tensor, number: int) -> None:
        self.total = self.total + total
        self.number += number

    @property
    def value(self) -> float:
        return float(self.total) / max(1, self.number)


def _running_average(model: nn.Module, decay: float) -> AveragedModel | None:
    if not decay:
        return None
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=False)
