"""The metrics of every epoch, which of them is the best, when to stop early, and a summary (``metrics.json``).

Where the learning rate falls to almost nothing, weights go on improving on new inputs when a dev metric only moves up
and down by a word or two. So among epochs that differ by no more than a dev set of that size can tell, the last is the
best one. Otherwise the best epoch is simply that with the best dev metric.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from math import sqrt
from pathlib import Path
from statistics import fmean

import torch

from antiphon import __version__
from antiphon.metrics.output_metrics import LOWER_IS_BETTER, RANKING_METRICS
from antiphon.runs.run_folder import RunFolder

PERFECT_EPOCHS = 3
"""Epochs with a perfect dev metric after which training stops."""
Row = dict[str, float]
"""The metrics of an epoch, counted from 1 as ``epoch``."""
_STANDARD_ERRORS = 0.5
"""Dev metrics that differ by at most so many standard errors do not tell which of two epochs is better."""
_PERCENTAGES = frozenset(
    {"accuracy", "phoneme_error_rate", "word_error_rate", "bleu", "chrf", "rouge1", "rouge2", "rougeL"}
)
"""Metrics whose standard error is taken to be that of a percentage of dev pairs."""


def is_perfect(metric: str, value: float) -> bool:
    """Whether no value of a metric is better: 0 errors, 100 %, or 1 of a ranking metric."""
    return value <= 0 if metric in LOWER_IS_BETTER else value >= (1 if metric in RANKING_METRICS else 100)


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
    """How training went; ``dev`` are the dev metrics of the best epoch, ``stopped`` is why it ended too early."""

    dev: Mapping[str, float]
    parameters: int
    seconds: float
    pairs_per_second: float
    best_epoch: int = 1
    epochs: int = 1
    stopped: str = ""

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
            }
        )
