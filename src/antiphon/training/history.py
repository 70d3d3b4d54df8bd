"""The metrics of every epoch, which of them is the best, and when to stop early."""

import csv
from dataclasses import dataclass, field
from pathlib import Path

from antiphon.metrics import LOWER_IS_BETTER
from antiphon.ranking.ranking_metrics import RANKING_METRICS

PERFECT_EPOCHS = 3
"""Epochs with a perfect dev metric after which training stops."""
Row = dict[str, float]
"""The metrics of an epoch, counted from 1 as ``epoch``."""


def is_perfect(metric: str, value: float) -> bool:
    """Whether no value of a metric is better: 0 errors, 100 %, or 1 of a ranking metric."""
    return value <= 0 if metric in LOWER_IS_BETTER else value >= (1 if metric in RANKING_METRICS else 100)


@dataclass
class History:
    """The metrics of every epoch so far, and of the best one by the dev metric.

    ``problem`` is why training stopped before its end, if it did.
    """

    metric: str
    patience: int
    rows: list[Row] = field(default_factory=list)
    best: Row = field(default_factory=dict)
    problem: str = ""

    def add(self, row: Row) -> bool:
        """Adds an epoch, and returns whether it is the best so far."""
        self.rows.append(row)
        is_best = not self.best or self._sort_key(row) < self._sort_key(self.best)
        if is_best:
            self.best = row
        return is_best

    @property
    def has_converged(self) -> bool:
        """Whether the dev metric has not improved for ``patience`` epochs, or cannot improve any more.

        Among epochs with the same dev metric the one with the lowest perplexity is the best, but only the first of them
        counts as an improvement.
        """
        if not self.rows:
            return False
        name = f"dev_{self.metric}"
        improved = next(row["epoch"] for row in self.rows if row[name] == self.best[name])
        last = self.rows[-PERFECT_EPOCHS:]
        is_done = len(last) == PERFECT_EPOCHS and all(is_perfect(self.metric, row[name]) for row in last)
        return is_done or self.rows[-1]["epoch"] - improved >= self.patience

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
