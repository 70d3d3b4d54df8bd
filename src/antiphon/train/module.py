"""One training step, one validation, and the optimiser, as Lightning wants them."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar, cast

import lightning as L
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import IterableDataset

from antiphon.data.batch import Batch
from antiphon.data.codec import PairCodec
from antiphon.data.readers import Pair
from antiphon.decode.best_alignments import add_alignments, have_unknown
from antiphon.decode.hypothesis import BeamSettings, Hypothesis
from antiphon.metrics import Outputs, perplexity, score_outputs
from antiphon.models.transducer import Transducer
from antiphon.recipe.schema import TrainSection
from antiphon.runs.kinds import Search, SequenceModel, log_prob
from antiphon.train.checkpoint import Checkpoint
from antiphon.train.processes import added_up, gathered, rank, size
from antiphon.train.recorded import RecordedSteps
from antiphon.train.step import Learned, RunningAverage, SharedStep, Step, restore_optimiser
from antiphon.train.within_memory import MemoryBound, WithinMemory

Numbers = NDArray[np.int64]
Measured = TypeVar("Measured")


class EpochBatches(IterableDataset[Any]):
    """The batches of one epoch: those of its passes over the pairs, in orders that the seed and the epoch decide.

    ``batch`` gets the indices of pairs, and a random seed for each of them.
    """

    def __init__(
        self,
        batch: Callable[[Numbers, Numbers], Any],
        plan: Callable[[np.random.Generator], list[Numbers]],
        *,
        seed: int,
        epoch: Callable[[], int],
        passes: int = 1,
    ) -> None:
        self.batch, self.plan, self.seed, self.epoch, self.passes = batch, plan, seed, epoch, passes
        self.planned = 0
        """Batches of the epoch that began last."""

    def __iter__(self) -> Iterator[Any]:
        epoch = self.epoch()
        plan = self.plan_epoch(epoch)
        self.planned = len(plan)
        for index, numbers in enumerate(plan):
            random = np.random.default_rng([self.seed, epoch, index])
            yield self.batch(numbers, random.integers(2**63, size=len(numbers)))

    def plan_epoch(self, epoch: int) -> list[Numbers]:
        """The indices of the pairs of every batch of an epoch; every pass has an order of its own."""
        order = np.random.default_rng([self.seed, epoch])
        return [numbers for _ in range(self.passes) for numbers in self.plan(order)]


@dataclass(frozen=True)
class Optimisation:
    """How weights move."""

    learning_rate: float
    average: float
    seed: int
    clip: float = 5.0
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    optimiser: Literal["adam", "adagrad"] = "adam"
    l2: float = 0.0

    def optimiser_of(self, model: nn.Module) -> torch.optim.Optimizer:
        """What moves the model's weights; ``l2`` adds ``l2 * weight`` to every gradient, as its penalty does."""
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if self.optimiser == "adagrad":
            return torch.optim.Adagrad(parameters, lr=self.learning_rate, weight_decay=self.l2)
        on_gpu = parameters[0].is_cuda
        learning_rate = torch.tensor(self.learning_rate, device=parameters[0].device) if on_gpu else self.learning_rate
        return torch.optim.Adam(parameters, learning_rate, weight_decay=self.l2, fused=True, capturable=on_gpu)


def optimisation_of(settings: TrainSection) -> Optimisation:
    """How a recipe wants weights to move."""
    names = [field.name for field in fields(Optimisation)]
    return Optimisation(**{name: getattr(settings, name) for name in names})


@dataclass(frozen=True)
class Validation:
    """What is measured after each epoch; outputs are searched for only where the dev metric needs them.

    ``plan`` has the indices of the pairs of every dev batch, and ``pairs`` the text of every pair.
    """

    metric: str
    codec: PairCodec
    beam: BeamSettings
    search: Search | None
    measures: Sequence[str]
    plan: Sequence[Numbers]
    pairs: Sequence[Pair]

    @property
    def needs_outputs(self) -> bool:
        """Whether the metric looks at outputs rather than at probabilities."""
        return self.metric != "perplexity"


class TrainingModule(L.LightningModule):
    """A model in training: the mean of ``losses`` is made small."""

    def __init__(self, model: nn.Module, optimisation: Optimisation, checkpoint: Checkpoint | None = None) -> None:
        super().__init__()
        self.model, self.optimisation = model, optimisation
        self.averaged = RunningAverage(model, optimisation.average) if optimisation.average else None
        self.memory, self.dev_memory = MemoryBound(), MemoryBound()
        self.checkpoint = checkpoint
        if checkpoint is not None:
            self.load_state_dict(checkpoint["module"])
        self.train_loss = Mean()
        self.dev_loss = Mean()
        self.dev_metrics: dict[str, float] = {}
        self.is_finite = True
        self.automatic_optimization = False

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

    def losses(self, batch: Any) -> Tensor:
        """The loss of each pair."""
        raise NotImplementedError

    def validate(self, batch: Any, index: int) -> None:
        """Adds a dev batch to what is measured."""
        raise NotImplementedError

    def measure(self) -> dict[str, float]:
        """The metrics of all dev batches."""
        raise NotImplementedError

    def on_validation_epoch_start(self) -> None:
        """Looks once whether the epoch is worth validating: a device sync per step would be too many."""
        self.dev_loss = Mean()
        bad = not (math.isfinite(self.train_loss.value) and are_finite(self))
        self.is_finite = added_up(bad)[0] == 0

    def validation_step(self, batch: Any, index: int) -> None:
        """Adds a dev batch to what is measured; what is not finite is not worth it."""
        if self.is_finite:
            self.validate(batch, index)

    def on_validation_epoch_end(self) -> None:
        """Turns what was added up into metrics, and notes whether the loss is finite."""
        if self.is_finite:
            self.dev_metrics = self.measure()
            self.is_finite = math.isfinite(self.dev_loss.value)

    def on_train_epoch_start(self) -> None:
        """Gives every epoch its own random numbers, so that a resumed run has the same ones."""
        torch.manual_seed((self.optimisation.seed * 1_000_003 + self.epoch + (rank() << 40)) % 2**63)
        self.train_loss = Mean()

    def on_train_start(self) -> None:
        """Puts the step together, once model and optimiser are where they are to work."""
        self.take_step = self.new_step()

    def new_step(self) -> Callable[[Any], Learned]:
        """What learns from a batch."""
        clip = self.optimisation.clip
        step = Step(self.model, self.losses, self.optimizer, clip, self.averaged, self.manual_backward)
        return SharedStep(step) if size() > 1 else WithinMemory(step, self.memory, recorded=self.recorded(step))

    @property
    def records_steps(self) -> bool:
        """Whether steps are recorded where it trains."""
        return False

    def recorded(self, step: Step) -> RecordedSteps | None:
        """The recording of a step for a GPU, where there is one."""
        return None

    def measured(self, batch: Any, measure: Callable[[Any], Measured]) -> list[Measured]:
        """What is measured of a batch, or of parts of it where it does not fit as a whole."""
        step = self.take_step
        make_room = step.forget_recordings if isinstance(step, WithinMemory) else lambda: False
        return self.dev_memory.fitted(batch, lambda parts: [measure(part) for part in parts], make_room)

    def training_step(self, batch: Any, _: int) -> None:
        """Learns from a batch."""
        self.train_loss.add(*self.take_step(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The optimiser, with what the checkpoint remembers of past gradients."""
        self.optimizer = self.optimisation.optimiser_of(self.model)
        if self.checkpoint is not None:
            restore_optimiser(self.optimizer, self.checkpoint["optimiser"])
        return self.optimizer


class GenerationTraining(TrainingModule):
    """Training of a model that writes: minus the log probability of each pair is made small."""

    def __init__(
        self,
        model: nn.Module,
        optimisation: Optimisation,
        validation: Validation,
        batch_size: int,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        super().__init__(model, optimisation, checkpoint)
        self.validation, self.batch_size = validation, batch_size
        self.dev_outputs: list[tuple[int, list[str]]] = []

    @property
    def records_steps(self) -> bool:
        """On a GPU."""
        return self.device.type == "cuda"

    def losses(self, batch: Batch) -> Tensor:
        """``-log p(y | x)`` of each pair."""
        half = self.optimisation.precision == "bfloat16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=half):
            return -cast(SequenceModel, self.model).log_prob(batch)

    def recorded(self, step: Step) -> RecordedSteps | None:
        """The recording of a step, if it is for a GPU."""
        return RecordedSteps(step, self.batch_size) if self.records_steps else None

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Moves a batch, but one to learn from by recorded steps, which pad it first."""
        waits = self.trainer.training and isinstance(self.take_step, WithinMemory) and self.take_step.takes_from_host
        return batch if waits else super().transfer_batch_to_device(batch, device, dataloader_idx)

    def on_validation_epoch_start(self) -> None:
        """Forgets the validation before."""
        super().on_validation_epoch_start()
        self.dev_outputs = []

    def validate(self, batch: Batch, index: int) -> None:
        """Adds a batch to what is measured; processes take turns."""
        if index % size() != rank():
            return
        outputs: list[list[Hypothesis]] = []
        for loss, found in self.measured(batch, self._measure):
            self.dev_loss.add(*loss)
            outputs += found
        for pair, hypotheses in zip(self.validation.plan[index].tolist(), outputs, strict=False):
            self.dev_outputs.append((pair, self._decode(self.validation.pairs[pair], hypotheses)))

    def _decode(self, pair: Pair, hypotheses: list[Hypothesis]) -> list[str]:
        """The tokens of the best output, as prediction writes them."""
        codec = self.validation.codec
        if not hypotheses:
            return []
        return codec.decode_copied(hypotheses[0].tokens, hypotheses[0].alignment, codec.source.tokens(pair.source))

    def _measure(self, batch: Batch) -> tuple[tuple[Tensor, int], list[list[Hypothesis]]]:
        """The loss of a batch and its number of tokens; and, if outputs are looked at, what was found for each."""
        loss = -log_prob(self.kept_model, batch).sum(), int(batch.target_lengths.sum())
        if not self.validation.needs_outputs or self.validation.search is None:
            return loss, []
        found = self.validation.search(self.kept_model, batch, self.validation.beam)
        if isinstance(self.kept_model, Transducer) and have_unknown(found):
            found = add_alignments(self.kept_model, batch, found)
        return loss, found

    def measure(self) -> dict[str, float]:
        """Perplexity; and, if outputs are looked at, the metrics of the task."""
        self.dev_loss.add_up()
        metrics = {"perplexity": perplexity(-self.dev_loss.value, 1).value}
        if self.validation.needs_outputs:
            found = gathered(self.dev_outputs)
            references = [[self.validation.pairs[index].target] for index, _ in found]
            outputs = Outputs.of(self.validation.codec.target, [tokens for _, tokens in found], references)
            scores = score_outputs(outputs, self.validation.measures)
            metrics |= {name: score.value for name, score in scores.items()}
        return metrics


def are_finite(model: nn.Module) -> bool:
    """Whether all parameters are finite; one device sync."""
    return bool(torch.stack([parameter.isfinite().all() for parameter in model.parameters()]).all())


class Mean:
    """A mean that is fetched from the device only when it is asked for."""

    def __init__(self) -> None:
        self.total: Tensor | float = 0.0
        self.number = 0

    def add(self, total: Tensor, number: int) -> None:
        """Adds the sum of ``number`` values."""
        self.total = self.total + total
        self.number += number

    def add_up(self) -> None:
        """Makes it the mean over all processes."""
        if size() > 1:
            total, number = added_up(float(self.total), self.number)
            self.total, self.number = total, int(number)

    @property
    def value(self) -> float:
        """The mean so far; 0 of nothing."""
        return float(self.total) / max(1, self.number)
