"""Metrics of the service for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
disable_created_metrics()  # type: ignore[no-untyped-call]


class ServiceMetrics:
    """All metrics."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(name, meaning, labels, registry=registry)

        def histogram(name: str, meaning: str, *labels: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
            return Histogram(name, meaning, labels, registry=registry, buckets=buckets)

        self.requests = counter("antiphon_requests", "Requests by route and status.", "route", "status")
        self.request_seconds = histogram("antiphon_request_seconds", "Time from request to answer.", "route")
        self.refused = counter("antiphon_refused", "Requests refused by a limit.", "limit")
        self.dropped = counter("antiphon_dropped", "Jobs dropped because their client has gone.")
        self.log_dropped = counter("antiphon_log_dropped", "Lines of the log that nobody took.")
        self.batch_items = histogram("antiphon_batch_items", "Inputs that were computed together.", buckets=_ITEMS)
        self.batch_seconds = histogram("antiphon_batch_seconds", "Time of one computation.")
        self.stream_seconds = histogram("antiphon_stream_step_seconds", "Time from a piece of input to its events.")
        self.tokens = counter("antiphon_stream_tokens", "Tokens that streams read and wrote.", "event")
        self.queue = Gauge("antiphon_queue_items", "Inputs that wait to be computed.", registry=registry)
        self.streams = Gauge("antiphon_open_streams", "Open streams.", registry=registry)

    def text(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self.registry)
