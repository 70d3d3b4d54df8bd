"""What a search finds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One output for one input.

    ``tokens`` are target ids, the end symbol last. ``rows`` holds the input position at which each of them was
    written, counted from 0; it is empty for models without an alignment. ``log_score`` is higher for better.
    """

    tokens: tuple[int, ...]
    log_score: float
    rows: tuple[int, ...] = ()


class Finished:
    """The ``keep`` best finished hypotheses of one sentence, best first."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.entries: list[tuple[float, int, int]] = []

    def add(self, log_score: float, column: int, parent: int) -> None:
        """Notes a hypothesis that ended in this column; ``parent`` is its last entry before the end symbol."""
        self.entries.append((log_score, column, parent))
        self.entries.sort(key=lambda entry: -entry[0])
        del self.entries[self.keep :]

    def beats(self, best_open: float) -> bool:
        """Whether no unfinished hypothesis can still enter, since scores only fall as outputs grow."""
        return len(self.entries) == self.keep and self.entries[-1][0] >= best_open
