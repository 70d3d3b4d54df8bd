"""All that changes during training, its history, and checkpoints of it: one file of plain tensors and numbers.

A checkpoint is written at the end of each epoch, and every few minutes within one. At the end of an epoch, random
numbers and the order of batches follow from the seed and the next epoch. Within an epoch each process adds the state
of its random number generators and its sum of losses.

The history has the metrics of every epoch and says which is the best, and when to stop early. Where the learning rate
falls to almost nothing, weights go on improving on new inputs when a dev metric only moves up and down by a word or
two. So among epochs that differ by no more than a dev set of that size can tell, the last is the best one. Otherwise
the best epoch is simply that with the best dev metric.
"""

import csv
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import Any, TypedDict

import torch
from torch import Tensor, nn

from antiphon import __version__
from antiphon.exceptions import RunError
from antiphon.metrics.output_metrics import LOWER_IS_BETTER, RANKING_METRICS
from antiphon.runs.run_folder import RunFolder
from antiphon.terminal import Say
from antiphon.training.distributed import all_gather, all_reduce_sum, rank, world_size
from antiphon.training.optimisation import EMA, Optimisation, restore_optimiser
from antiphon.training.step import MicroBatchLimit

PERFECT_EPOCHS = 3
"""Epochs with a perfect dev metric after which training stops."""
Row = dict[str, float]
"""The metrics of an epoch, counted from 1 as ``epoch``."""
_STANDARD_ERRORS = 0.5
"""Dev metrics that differ by at most so many standard errors do not tell which of two epochs is better."""
_PERCENTAGES = frozenset(
    {"accuracy", "symbol_error_rate", "word_error_rate", "bleu", "chrf", "rouge1", "rouge2", "rougeL"}
)
"""Metrics whose standard error is taken to be that of a percentage of dev pairs."""

_LATELY, _GAIN = 0.25, 0.02
"""Training still improves the model if this last fraction of its epochs lowers the errors by this fraction of them."""


def is_perfect(metric: str, value: float) -> bool:
    """Whether no value of a metric is better: 0 errors, 100 %, or 1 of a ranking metric."""
    return value <= 0 if metric in LOWER_IS_BETTER else value >= (1 if metric in RANKING_METRICS else 100)


def improved_lately(metric: str, rows: Sequence[Row]) -> bool:
    """Whether the last quarter of the epochs lowered the errors or the perplexity on dev by more than two per cent."""
    last = max(1, round(_LATELY * len(rows)))
    return any(_has_fallen(_errors(name, rows), last) for name in (metric, "perplexity"))


def _errors(metric: str, rows: Sequence[Row]) -> list[float]:
    """A dev metric of every epoch as a number that falls."""
    values = [row[f"dev_{metric}"] for row in rows]
    best = 1 if metric in RANKING_METRICS else 100
    return values if metric in LOWER_IS_BETTER else [best - each for each in values]


def _has_fallen(errors: Sequence[float], last: int) -> bool:
    return len(errors) > last and min(errors[-last:]) < (1 - _GAIN) * min(errors[:-last])


@dataclass
class History:
    """The metrics of every epoch so far, and of the best one by the dev metric.

    ``comparable_pairs`` is the number of dev pairs if later epochs are preferred, else 0. ``problem`` is why training
    stopped before its end, if it did.
    """

    metric: str
    patience: int
    comparable_pairs: int = 0
    rows: list[Row] = field(default_factory=list)
    best: Row = field(default_factory=dict)
    problem: str = ""

    def add(self, row: Row) -> bool:
        """Adds an epoch, and returns whether it is the best so far."""
        self.rows.append(row)
        is_best = len(self.rows) == 1 or self._is_as_good(row, self.rows[:-1])
        if is_best:
            self.best = row
        return is_best

    def _is_as_good(self, row: Row, before: Sequence[Row]) -> bool:
        """Whether an epoch is better than all before it, or as good as far as the dev set can tell."""
        top = min(map(self._sort_key, before))
        margin = self._margin(abs(top[0]))
        return self._sort_key(row)[0] <= top[0] + margin if margin else self._sort_key(row) < top

    def _margin(self, value: float) -> float:
        """The difference of dev metrics that means nothing."""
        if self.metric not in _PERCENTAGES or not self.comparable_pairs:
            return 0.0
        share = min(value / 100, 1.0)
        return _STANDARD_ERRORS * 100 * sqrt(share * (1 - share) / self.comparable_pairs)

    @property
    def has_converged(self) -> bool:
        """Whether the dev metric has not improved for ``patience`` epochs, or cannot improve any more.

        An epoch that is only as good as one before may be the best, but does not count as an improvement.
        """
        if not self.rows:
            return False
        name = f"dev_{self.metric}"
        top = min(self.rows, key=self._sort_key)[name]
        improved = next(row["epoch"] for row in self.rows if row[name] == top)
        last = self.rows[-PERFECT_EPOCHS:]
        is_done = len(last) == PERFECT_EPOCHS and all(is_perfect(self.metric, row[name]) for row in last)
        return is_done or self.rows[-1]["epoch"] - improved >= self.patience

    def summary(self, parameters: int, more: Mapping[str, float]) -> "Summary":
        """How training went; ``more`` are further dev metrics."""
        best = {name.removeprefix("dev_"): value for name, value in self.best.items() if name.startswith("dev_")}
        return Summary(
            {**best, **more},
            parameters,
            seconds=sum(row["seconds"] for row in self.rows),
            pairs_per_second=fmean(row["pairs_per_second"] for row in self.rows),
            best_epoch=int(self.best["epoch"]),
            epochs=len(self.rows),
            stopped=self.problem,
            improving=improved_lately(self.metric, self.rows),
        )

    def write_csv(self, path: Path) -> None:
        """Writes a line for each epoch."""
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(self.rows[0]))
            writer.writeheader()
            writer.writerows({name: f"{value:.6g}" for name, value in row.items()} for row in self.rows)

    def _sort_key(self, row: Row) -> tuple[float, float]:
        """Lower is better; ties are broken by perplexity."""
        value = row[f"dev_{self.metric}"]
        return value if self.metric in LOWER_IS_BETTER else -value, row["dev_perplexity"]


@dataclass(frozen=True)
class Summary:
    """How training went: dev metrics of the best epoch, why it ended too early if it did, whether it still improved."""

    dev: Mapping[str, float]
    parameters: int
    seconds: float
    pairs_per_second: float
    best_epoch: int = 1
    epochs: int = 1
    stopped: str = ""
    improving: bool = False

    def save(self, run: RunFolder, seed: int) -> None:
        """Writes ``metrics.json`` into the run, which makes it a trained one."""
        run.save_metrics(
            {
                "best_epoch": self.best_epoch,
                "epochs": self.epochs,
                **{f"dev_{name}": value for name, value in self.dev.items()},
                "parameters": self.parameters,
                "training_seconds": round(self.seconds, 1),
                "pairs_per_second": round(self.pairs_per_second, 1),
                "seed": seed,
                "date": date.today().isoformat(),
                "antiphon": __version__,
                "torch": torch.__version__,
                **({"stopped": self.stopped} if self.stopped else {}),
                **({"improving": True} if self.improving else {}),
            }
        )


class RankState(TypedDict):
    """The state of one process within an epoch: random number generators by device, and its losses so far."""

    random: dict[str, Tensor]
    loss: Tensor
    pairs: int


class Checkpoint(TypedDict):
    """Training after ``epochs`` epochs and ``updates`` updates of the next one, which took ``seconds`` so far.

    ``max_cells`` are the limits of training and validation found after out-of-memory errors. ``ranks`` has an entry for
    each process within an epoch, and none between epochs.
    """

    epochs: int
    updates: int
    seconds: float
    ranks: list[RankState]
    model: dict[str, Any]
    ema: dict[str, Any] | None
    optimiser: dict[str, Any]
    max_cells: list[int | None]
    rows: list[dict[str, float]]
    best: dict[str, float]


def save_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Writes a checkpoint; a full disk is an ``OSError``, as everywhere."""
    try:
        with path.open("wb") as file:
            torch.save(checkpoint, file)
    except RuntimeError as error:  # PyTorch cannot finish a file that could not be written
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def load_checkpoint(path: Path) -> Checkpoint | None:
    """The checkpoint, if there is one; nothing in it is executed."""
    if not path.exists():
        return None
    try:
        with warnings.catch_warnings(action="ignore"):  # about the protocol of a file that no training wrote
            checkpoint: Checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise RunError(
            f"{path}: damaged ({type(error).__name__}), expected a checkpoint; --force starts again"
        ) from None
    if not isinstance(checkpoint, dict) or checkpoint.keys() != Checkpoint.__annotations__.keys():
        raise RunError(f"{path}: not a checkpoint of training, expected one; --force starts again")
    return checkpoint


@contextmanager
def refuse_other_shapes(path: Path) -> Iterator[None]:
    """Inside, a checkpoint that does not fit the model is refused."""
    try:
        yield
    except (RuntimeError, KeyError, ValueError, TypeError) as error:
        if not path.exists():
            raise
        raise RunError(
            f"{path}: does not fit the model of this run's recipe ({str(error).splitlines()[0]}), expected the "
            "checkpoint of this run; --force starts again"
        ) from error


class RunningMean:
    """A mean that is copied from the device only when it is read."""

    def __init__(self) -> None:
        self.total: Tensor | float = 0.0
        self.count = 0

    def add(self, total: Tensor, count: int) -> None:
        """Adds the sum of ``count`` values."""
        self.total = self.total + total
        self.count += count

    def all_reduce(self) -> None:
        """Makes it the mean over all processes."""
        if world_size() > 1:
            total, count = all_reduce_sum(float(self.total), self.count)
            self.total, self.count = total, int(count)

    @property
    def value(self) -> float:
        """The mean so far; 0 of nothing."""
        return float(self.total) / max(1, self.count)


@dataclass
class TrainingState:
    """A model in training after ``epoch`` epochs and ``update`` updates of the next one.

    ``seconds`` is how long that epoch had taken at the last checkpoint, and ``resumed`` the state that each process had
    then.
    """

    model: nn.Module
    ema: EMA | None
    optimiser: torch.optim.Optimizer
    limit: MicroBatchLimit
    dev_limit: MicroBatchLimit
    epoch: int = 0
    update: int = 0
    seconds: float = 0.0
    loss: RunningMean = field(default_factory=RunningMean)
    resumed: list[RankState] = field(default_factory=list)

    @classmethod
    def new(cls, model: nn.Module, optimisation: Optimisation, device: torch.device, say: Say) -> "TrainingState":
        """The state before the first update, on a device."""
        model = model.to(device).train()
        ema = EMA(model, optimisation.ema_decay).to(device) if optimisation.ema_decay else None
        return cls(model, ema, optimisation.new_optimiser(model), MicroBatchLimit(say), MicroBatchLimit(say))

    @property
    def evaluated_model(self) -> nn.Module:
        """The model that is validated and saved: the EMA, if there is one."""
        return self.model if self.ema is None else self.ema.module

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def checkpoint(self, history: History, seconds: float = 0.0) -> Checkpoint:
        """All that is needed to resume from here; called by all processes together."""
        return Checkpoint(
            epochs=self.epoch,
            updates=self.update,
            seconds=seconds,
            ranks=all_gather([self._rank_state()]) if self.update else [],
            model=self.model.state_dict(),
            ema=None if self.ema is None else self.ema.state_dict(),
            optimiser=self.optimiser.state_dict(),
            max_cells=[self.limit.max_cells, self.dev_limit.max_cells],
            rows=history.rows,
            best=history.best,
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Goes back to a checkpoint."""
        self.model.load_state_dict(checkpoint["model"])
        if self.ema is not None:
            self.ema.load_state_dict(checkpoint["ema"] or {})
        restore_optimiser(self.optimiser, checkpoint["optimiser"])
        self.limit.max_cells, self.dev_limit.max_cells = checkpoint["max_cells"]
        self.epoch, self.update, self.seconds = checkpoint["epochs"], checkpoint["updates"], checkpoint["seconds"]
        self.resumed = checkpoint["ranks"]

    def start_epoch(self, seed: int) -> None:
        """Seeds the random numbers of the next epoch, or continues those of one that was interrupted.

        With a different number of processes than before, rank r of n takes over the losses of ranks r, r + n, ...
        """
        torch.manual_seed((seed * 1_000_003 + self.epoch + (rank() << 40)) % 2**63)
        self.loss = RunningMean()
        own, self.resumed = self.resumed[rank() :: world_size()], []
        for earlier in own:
            self.loss.add(earlier["loss"].to(self.device), earlier["pairs"])
        if own:
            _set_random_state(own[0]["random"], self.device)

    def finish_epoch(self) -> None:
        """Moves on to the start of the next epoch."""
        self.epoch, self.update, self.seconds = self.epoch + 1, 0, 0.0

    def is_finite(self) -> bool:
        """Whether the loss and all weights are finite; one device sync."""
        weights = [*self.model.parameters(), *(self.ema.parameters() if self.ema is not None else ())]
        finite = torch.stack([weight.isfinite().all() for weight in weights]).all()
        return bool(finite & torch.as_tensor(self.loss.total, device=finite.device).isfinite())

    def _rank_state(self) -> RankState:
        loss = torch.as_tensor(self.loss.total).cpu()
        return RankState(random=_random_state(self.device), loss=loss, pairs=self.loss.count)


def _random_state(device: torch.device) -> dict[str, Tensor]:
    """The state of all random number generators that training uses."""
    on_gpu = {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {}
    return {"cpu": torch.get_rng_state(), **on_gpu}


def _set_random_state(state: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
