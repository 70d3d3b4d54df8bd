"""Progress of a search: a line for every trial that has ended, and a table of those in training and of the best."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from antiphon.terminal import duration

if TYPE_CHECKING:
    from antiphon.settings_search.results import TrialResult

_BEST_SHOWN = 5
_ENDED = ("complete", "pruned", "failed")


class GridProgress:
    """The trials of all processes of a search; without a terminal only a line for each that has ended."""

    def __init__(self, console: Console, metric: str, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.console, self.metric, self.total, self.clock = console, metric.replace("_", " "), total, clock
        self._started, self._done_before = clock(), -1.0
        self._printed: set[int] = set()
        self._live = Live(console=console, transient=True, auto_refresh=False)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, results: "Sequence[TrialResult]") -> None:
        """Prints what has ended since the last time, and refreshes the table."""
        for result in sorted(results, key=lambda each: each.number):
            if result.state in _ENDED and result.number not in self._printed:
                self._printed.add(result.number)
                self.console.print(f"{len(self._printed)} of {self.total}  {self._line(result)}", soft_wrap=True)
        self._live.update(self.table(results), refresh=self._live.is_started)

    def table(self, results: "Sequence[TrialResult]") -> Table:
        """The trials in training, and the best of those that are complete."""
        table = Table(title=self.summary(results), title_justify="left")
        table.add_column("trial", overflow="fold")
        for name in ("state", "epoch", f"dev {self.metric}"):
            table.add_column(name, justify="right")
        running = [each for each in results if each.state == "running"]
        for result in [*running, *[each for each in results if each.state == "complete"][:_BEST_SHOWN]]:
            epochs = f"{result.epochs}/{result.max_epochs}" if result.max_epochs else str(result.epochs or "")
            value = f"{result.value:.4g}" if result.epochs else ""
            table.add_row(" ".join(result.settings), result.state, epochs, value)
        return table

    def summary(self, results: "Sequence[TrialResult]") -> str:
        """Number of trials that have ended, and the estimated time left."""
        ended = sum(result.state in _ENDED for result in results)
        done = ended + sum(_share(result) for result in results if result.state == "running")
        if self._done_before < 0:
            self._done_before = done
        new = done - self._done_before
        seconds = (self.clock() - self._started) / new * (self.total - done) if new else 0
        return f"{ended} of {self.total} trials" + (f", {duration(seconds)} left" if new and done < self.total else "")

    def _line(self, result: "TrialResult") -> str:
        name, value = " ".join(result.settings), f"dev {self.metric} {result.value:.4g}"
        if result.state == "pruned":
            return f"{name}  pruned in epoch {result.epochs}, {value}"
        return f"{name}  {result.problem or value}"


def _share(result: "TrialResult") -> float:
    return result.epochs / result.max_epochs if result.max_epochs else 0.0
