"""Metrics of the service in the text format of Prometheus: counters, gauges and histograms."""

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Counter:
    """Numbers that only grow, one for each combination of labels."""

    def __init__(self, name: str, help_: str, labels: Sequence[str] = ()) -> None:
        self.name, self.help, self.labels = name, help_, labels
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}
        self._lock = threading.Lock()

    def increment(self, *labels: str, amount: float = 1.0) -> None:
        """Adds to the number with these labels."""
        with self._lock:
            self._values[labels] = self._values.get(labels, 0.0) + amount

    def lines(self) -> Iterator[str]:
        """The text of the numbers."""
        yield from _head(self.name, self.help, "counter")
        with self._lock:
            values = sorted(self._values.items())
        for labels, value in values:
            yield f"{self.name}{_labels(self.labels, labels)} {value:g}"


class Gauge:
    """A number that is read when the metrics are requested."""

    def __init__(self, name: str, help_: str, read: Callable[[], float] = lambda: 0.0) -> None:
        self.name, self.help, self.read = name, help_, read

    def lines(self) -> Iterator[str]:
        """The text of the number."""
        yield from _head(self.name, self.help, "gauge")
        yield f"{self.name} {self.read():g}"


class Histogram:
    """How many values were at most as large as each bound."""

    def __init__(self, name: str, help_: str, bounds: Sequence[float] = _SECONDS) -> None:
        self.name, self.help, self.bounds = name, help_, bounds
        self._counts, self._sum = [0] * (len(bounds) + 1), 0.0
        self._lock = threading.Lock()

    def observe(self, value: float) -> None:
        """Adds a value."""
        with self._lock:
            self._counts[bisect_left(self.bounds, value)] += 1
            self._sum += value

    def lines(self) -> Iterator[str]:
        """The text of the counts, each of which includes those before it."""
        yield from _head(self.name, self.help, "histogram")
        with self._lock:
            counts, total = list(self._counts), self._sum
        running = 0
        for bound, count in zip((*(f"{bound:g}" for bound in self.bounds), "+Inf"), counts, strict=True):
            running += count
            yield f'{self.name}_bucket{{le="{bound}"}} {running}'
        yield f"{self.name}_sum {total:g}"
        yield f"{self.name}_count {running}"


class ServiceMetrics:
    """All metrics."""

    def __init__(self) -> None:
        self.requests = Counter("antiphon_requests_total", "Requests by route and status.", ("route", "status"))
        self.request_seconds = Histogram("antiphon_request_seconds", "Time from request to answer.")
        self.refused = Counter("antiphon_refused_total", "Requests refused by a limit.", ("limit",))
        self.dropped = Counter("antiphon_dropped_total", "Jobs dropped because their client has gone.")
        self.batch_items = Histogram("antiphon_batch_items", "Inputs that were computed together.", _ITEMS)
        self.batch_seconds = Histogram("antiphon_batch_seconds", "Time of one computation.")
        self.stream_seconds = Histogram("antiphon_stream_step_seconds", "Time from a piece of input to its events.")
        self.tokens = Counter("antiphon_stream_tokens_total", "Tokens that streams read and wrote.", ("event",))
        self.queue = Gauge("antiphon_queue_items", "Inputs that wait to be computed.")
        self.streams = Gauge("antiphon_open_streams", "Open streams.")

    def text(self) -> str:
        """All metrics as text."""
        return "\n".join([*(line for metric in vars(self).values() for line in metric.lines()), ""])


def _head(name: str, help_: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {help_}"
    yield f"# TYPE {name} {kind}"


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    if not names:
        return ""
    pairs = zip(names, values, strict=True)
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
