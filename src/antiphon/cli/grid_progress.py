"""Progress of a grid search: a line for every finished combination, and bars for those in training."""

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from antiphon.terminal import duration

if TYPE_CHECKING:
    from antiphon.tune.grid_search import Cell, Result

_EPOCH = re.compile(r"epoch (\d+)/(\d+)")


class GridProgress:
    """Bars for the whole search and for every run in training; without a terminal only lines."""

    def __init__(self, console: Console, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.console, self.total, self.clock = console, total, clock
        self.started, self.ended = clock(), 0
        self._shares: dict[str, float] = {}
        self._tasks: dict[str, TaskID] = {}
        self.progress = Progress(
            BarColumn(bar_width=16),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._whole = self.progress.add_task(self.summary(), total=total)

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def update(self, cell: "Cell", line: str) -> None:
        """Moves the bar of a run by a line of its output, if that is the line of an epoch."""
        found = _EPOCH.match(line)
        if found is None:
            return
        epoch, epochs = map(int, found.groups())
        name = " ".join(cell.settings)
        if name not in self._tasks:
            self._tasks[name] = self.progress.add_task(name, total=1.0)
        self._shares[name] = epoch / epochs
        self.progress.update(self._tasks[name], completed=epoch / epochs, description=f"{name}  {line.strip()}")
        self._update()

    def end(self, result: "Result") -> None:
        """Prints the line of a finished combination and removes its bar."""
        name, metric = " ".join(result.cell.settings), result.cell.recipe.train.dev_metric
        self.ended += 1
        self._shares.pop(name, None)
        if name in self._tasks:
            self.progress.remove_task(self._tasks.pop(name))
        said = result.problem or f"dev {metric} {result.value:.4g}"
        self.console.print(f"{self.ended} of {self.total}  {name}  {said}", soft_wrap=True)
        self._update()

    def summary(self) -> str:
        """Number of finished combinations, and the estimated time left."""
        done = self._done()
        elapsed = self.clock() - self.started
        left = f", {duration(elapsed / done * (self.total - done))} left" if done else ""
        return f"{self.ended} of {self.total} combinations{left}"

    def _done(self) -> float:
        return self.ended + sum(self._shares.values())

    def _update(self) -> None:
        self.progress.update(self._whole, completed=self._done(), description=self.summary())
