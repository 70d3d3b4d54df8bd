"""Dynamic batching: one thread computes, and what waits for it is computed together.

A job has a key; jobs of the same key are computed in one call. The first job waits a few milliseconds for others unless
the thread was busy when it came. Steps of streams and all other jobs take turns, so neither waits for long. A job whose
client has gone is dropped before it is computed.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from antiphon.exceptions import AntiphonError
from antiphon.serve.guards import RefusedError
from antiphon.serve.service_metrics import ServiceMetrics

Compute = Callable[[list[Any]], Sequence[Any]]
"""From the items of several jobs to one result for each item."""
MAX_BATCH = 64
"""Items that are computed in one call; a single job may have more."""
_RETRY_AFTER = [(b"retry-after", b"1")]


class StoppingError(RefusedError):
    """The service stops and takes no new work."""

    def __init__(self) -> None:
        super().__init__(503, "the service is stopping, expected a request to another one", [(b"retry-after", b"5")])


@dataclass(eq=False)
class Job:
    """Items to compute, and the future of their results."""

    key: Hashable
    items: Sequence[Any]
    compute: Compute
    future: "asyncio.Future[Sequence[Any]]"
    arrived: float = field(default_factory=time.monotonic)


Outcome = Sequence[Any] | BaseException


class Batcher:
    """Runs jobs of an event loop in a thread of its own."""

    def __init__(self, *, wait_seconds: float, max_queue: int, metrics: ServiceMetrics) -> None:
        self.wait_seconds, self.max_queue, self.metrics = wait_seconds, max_queue, metrics
        self._streams, self._others = deque[Job](), deque[Job]()
        self._changed = threading.Condition()
        self._waiting = self._running = 0
        self._stopping = self._streams_first = False
        self._thread = threading.Thread(target=self._work, name="antiphon-worker", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Items that wait to be computed."""
        return self._waiting

    async def submit(
        self, key: Hashable, items: Sequence[Any], compute: Compute, *, of_stream: bool = False
    ) -> Sequence[Any]:
        """The results of the items, computed together with others of the same key; a full queue refuses them."""
        job = Job(key, items, compute, asyncio.get_running_loop().create_future())
        with self._changed:
            if self._stopping:
                raise StoppingError
            if self._waiting + len(items) > self.max_queue:
                self.metrics.refused.increment("queue")
                raise RefusedError(
                    429, f"{self._waiting:,} inputs wait already, expected a request later", _RETRY_AFTER
                )
            (self._streams if of_stream else self._others).append(job)
            self._waiting += len(items)
            self._changed.notify()
        return await job.future

    async def drain(self, seconds: float) -> None:
        """Waits until nothing waits or runs any more, for at most so many seconds."""
        deadline = time.monotonic() + seconds
        while (self._waiting or self._running) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)

    def stop(self) -> None:
        """Takes no more jobs and ends the thread after those that wait."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while jobs := self._take():
            outcomes = self._compute(jobs)
            loop = jobs[0].future.get_loop()
            try:
                loop.call_soon_threadsafe(_deliver, jobs, outcomes)
            except RuntimeError:  # the event loop is closed: the results have no receiver
                return
            self._running = 0

    def _take(self) -> list[Job]:
        """The jobs to compute next, all of one key; none once the service stops and nothing waits."""
        with self._changed:
            while not (self._streams or self._others):
                if self._stopping:
                    return []
                self._changed.wait()
            self._wait_for_company()
            self._streams_first = bool(self._streams) and (not self._others or not self._streams_first)
            jobs = self._pick(self._streams if self._streams_first else self._others)
            self._running = 1
            return jobs

    def _wait_for_company(self) -> None:
        """Lets further jobs arrive for a moment after the oldest one."""
        oldest = min(queue[0].arrived for queue in (self._streams, self._others) if queue)
        while self._waiting < MAX_BATCH and not self._stopping:
            remaining = oldest + self.wait_seconds - time.monotonic()
            if remaining <= 0:
                return
            self._changed.wait(remaining)

    def _pick(self, queue: deque[Job]) -> list[Job]:
        """The oldest job and those of the same key that fit into a batch with it; the others keep their order."""
        picked, others, size = list[Job](), list[Job](), 0
        key = queue[0].key
        for job in queue:
            if job.key == key and (not picked or size + len(job.items) <= MAX_BATCH):
                picked.append(job)
                size += len(job.items)
            else:
                others.append(job)
        queue.clear()
        queue.extend(others)
        self._waiting -= size
        return picked

    def _compute(self, jobs: list[Job]) -> list[Outcome]:
        """The results of each job; if one fails, each is computed by itself, so that it fails alone."""
        wanted = [job for job in jobs if not job.future.done()]
        self.metrics.dropped.increment(amount=len(jobs) - len(wanted))
        outcomes = dict(zip(wanted, self._compute_wanted(wanted), strict=True))
        return [outcomes.get(job, ()) for job in jobs]

    def _compute_wanted(self, jobs: list[Job]) -> Iterable[Outcome]:
        if not jobs:
            return []
        started = time.monotonic()
        try:
            items = list(chain.from_iterable(job.items for job in jobs))
            results = list(jobs[0].compute(items))
        except BaseException as error:
            if len(jobs) == 1:
                return [_named(error)]
            return [outcome for job in jobs for outcome in self._compute_wanted([job])]
        self.metrics.batch_items.observe(len(items))
        self.metrics.batch_seconds.observe(time.monotonic() - started)
        parts, start = [], 0
        for job in jobs:
            parts.append(results[start : start + len(job.items)])
            start += len(job.items)
        return parts


def _named(error: BaseException) -> BaseException:
    """An error of the library as an answer; others are bugs."""
    return RefusedError(400, str(error)) if isinstance(error, AntiphonError) else error


def _deliver(jobs: list[Job], outcomes: list[Outcome]) -> None:
    """Hands results to those who wait; runs in the event loop."""
    for job, outcome in zip(jobs, outcomes, strict=True):
        if job.future.done():
            continue
        if isinstance(outcome, BaseException):
            job.future.set_exception(outcome)
        else:
            job.future.set_result(outcome)
