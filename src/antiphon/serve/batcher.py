"""Dynamic batching: jobs that wait are computed in worker threads, all those with the same key in one call.

Steps of streams and all other jobs wait in two lanes, each with a thread of its own and at most one batch in progress,
so that a long computation never holds a stream up. In an idle lane, the first job waits a few milliseconds for others.
After a batch, the lane waits until as many items have arrived as were in progress before, as long as more keep coming,
and no longer than the batch took: a large batch costs little more than a single item, and while it gathers, the event
loop has the interpreter to itself. A job whose client has gone is dropped before it is computed.

If a batch fails, its jobs are computed again one by one, so that only the bad one fails. Steps of streams are not: a
step changes its stream, so it is computed once or refused, and all steps of the batch are refused together.
"""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Any, TypeVar, cast

from antiphon.exceptions import AntiphonError
from antiphon.serve.guards import RefusedError
from antiphon.serve.monitoring import ServiceMetrics

T = TypeVar("T")
Compute = Callable[[list[Any]], Sequence[Any]]
"""From the items of several jobs to one result for each item."""
MAX_BATCH = 64
"""Items that are computed in one call, long ones counted as several."""
PART = 32
"""Items of one request that are computed in one call, long ones counted as several."""
MAX_STREAMS = 256
"""Streams that advance in one call."""
_STREAMS_GATHER = 0.010
"""Maximum number of seconds that steps of streams gather: open streams never stop sending them."""
_LONGEST_PAUSE = 0.01
"""Jobs stop gathering after this many seconds without a new one, or a quarter of the last batch's time if shorter."""
_log = logging.getLogger(__name__)


class StoppingError(RefusedError):
    """The service stops and takes no new work."""

    def __init__(self) -> None:
        super().__init__(503, "the service is stopping, expected a request to another one", {"Retry-After": "5"})


class StepError(RefusedError):
    """Steps of streams that were computed together have failed; none of them was read."""

    def __init__(self) -> None:
        super().__init__(500, "the service failed on this step, and its log says why; nothing of the step was read")


def packed(items: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Consecutive items in groups of at most this size; one that is larger is a group of its own."""
    group, total = list[T](), 0
    for item in items:
        if group and total + size(item) > most:
            yield group
            group, total = [], 0
        group.append(item)
        total += size(item)
    if group:
        yield group


@dataclass(eq=False)
class Job:
    """Items to compute, and the future of their results."""

    key: Hashable
    items: Sequence[Any]
    compute: Compute
    future: "asyncio.Future[Sequence[Any]]"
    size: int
    """The number of items, long ones counted as several."""
    arrived: float = field(default_factory=time.monotonic)


Outcome = Sequence[Any] | BaseException


@dataclass(eq=False)
class Lane:
    """Jobs that wait, and what is known of the last batch: when it was finished, and how long it took.

    Jobs of at most the size ``most`` are computed in one call, or a single larger one; jobs gather for at most
    ``gather_seconds``. ``expected`` items were on their way when the last batch was finished: those in it, whose
    clients may go on with others, and those waiting.
    """

    most: int
    gather_seconds: float = math.inf
    can_repeat: bool = True
    thread: ThreadPoolExecutor = field(default_factory=partial(ThreadPoolExecutor, 1, "antiphon-worker"))
    jobs: deque[Job] = field(default_factory=deque)
    waiting: int = 0
    is_busy: bool = False
    timer: asyncio.TimerHandle | None = None
    finished: float = -math.inf
    seconds: float = 0.0
    expected: int = 0

    def add(self, job: Job) -> None:
        """Adds a job after the others."""
        self.jobs.append(job)
        self.waiting += len(job.items)

    def due(self, wait_seconds: float) -> float:
        """The time at which the jobs should be computed."""
        first, last = self.jobs[0].arrived, self.jobs[-1].arrived
        gathered = self.finished + min(self.seconds, self.gather_seconds)
        if self.waiting >= self.most or (last < gathered and self.waiting >= self.expected):
            return -math.inf
        pause = max(wait_seconds, min(_LONGEST_PAUSE, self.seconds / 4))
        return max(first + wait_seconds, min(max(last, self.finished) + pause, gathered))

    def finish(self, items: int, seconds: float) -> None:
        """Notes that a batch of this many items was finished."""
        self.is_busy, self.finished, self.seconds = False, time.monotonic(), seconds
        self.expected = items + self.waiting

    def take(self) -> list[Job]:
        """The oldest job and those of the same key that fit into a batch with it; the others keep their order."""
        picked, others, size = list[Job](), deque[Job](), 0
        key = self.jobs[0].key
        for job in self.jobs:
            if job.key == key and (not picked or size + job.size <= self.most):
                picked.append(job)
                size += job.size
                self.waiting -= len(job.items)
            else:
                others.append(job)
        self.jobs, self.is_busy = others, True
        return picked


class Batcher:
    """Runs the jobs of an event loop in the threads of its lanes."""

    def __init__(self, *, wait_seconds: float, max_queue: int, metrics: ServiceMetrics) -> None:
        self.wait_seconds, self.max_queue, self.metrics = wait_seconds, max_queue, metrics
        self._streams, self._others = Lane(MAX_STREAMS, _STREAMS_GATHER, can_repeat=False), Lane(MAX_BATCH)
        self._is_stopping = False

    @property
    def waiting(self) -> int:
        """Items that wait to be computed."""
        return self._streams.waiting + self._others.waiting

    async def submit(
        self,
        key: Hashable,
        items: Sequence[Any],
        compute: Compute,
        *,
        size: int | None = None,
        of_stream: bool = False,
    ) -> Sequence[Any]:
        """The results of the items, computed together with others of the same key; a full queue refuses them."""
        if self._is_stopping:
            raise StoppingError
        if self.waiting + len(items) > self.max_queue:
            self.metrics.refused.labels("queue").inc()
            message = f"{self.waiting:,} inputs are waiting already, expected a request later"
            raise RefusedError(429, message, {"Retry-After": "1"})
        job = Job(key, items, compute, asyncio.get_running_loop().create_future(), size or len(items))
        lane = self._streams if of_stream else self._others
        lane.add(job)
        self._schedule(lane)
        return await job.future

    async def submit_alone(self, compute: Callable[[], T]) -> T:
        """The result of a computation that shares its call with no other job."""
        (result,) = await self.submit(object(), [None], lambda _: [compute()])
        return cast(T, result)

    async def submit_parts(
        self, key: Hashable, items: Sequence[Any], compute: Compute, size: Callable[[Any], int]
    ) -> list[Any]:
        """The results of items that are computed in parts, so that others need not wait for all of them."""
        parts = list(packed(items, size, PART))
        jobs = [asyncio.ensure_future(self.submit(key, part, compute, size=sum(map(size, part)))) for part in parts]
        try:
            return list(chain.from_iterable(await asyncio.gather(*jobs)))
        finally:  # if one fails or the caller is cancelled, so are the others
            for job in jobs:
                job.cancel()

    async def drain(self, seconds: float) -> None:
        """Waits until no job waits or runs, for at most this many seconds."""
        deadline = time.monotonic() + seconds
        while any(lane.jobs or lane.is_busy for lane in (self._streams, self._others)) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)

    def stop(self) -> None:
        """Takes no more jobs and ends the threads after those that wait."""
        self._is_stopping = True
        for lane in (self._streams, self._others):
            while lane.jobs:
                self._hand_over(lane)
        for lane in (self._streams, self._others):
            lane.thread.shutdown()

    def _schedule(self, lane: Lane) -> None:
        """Schedules the jobs of a lane for when they are due, unless they are scheduled already."""
        if lane.jobs and not lane.is_busy and lane.timer is None:
            delay = max(0.0, lane.due(self.wait_seconds) - time.monotonic())
            lane.timer = asyncio.get_running_loop().call_later(delay, self._dispatch, lane)

    def _dispatch(self, lane: Lane) -> None:
        """Hands the next jobs of a lane to its thread, or waits for more."""
        lane.timer = None
        if lane.jobs and lane.due(self.wait_seconds) <= time.monotonic():
            self._hand_over(lane)
        else:
            self._schedule(lane)

    def _hand_over(self, lane: Lane) -> None:
        """Hands the next jobs of a lane to its thread."""
        jobs, started = lane.take(), time.monotonic()
        done = asyncio.get_running_loop().run_in_executor(lane.thread, self._compute_wanted, jobs, lane.can_repeat)
        done.add_done_callback(partial(self._finish, lane, jobs, started))

    def _finish(self, lane: Lane, jobs: list[Job], started: float, done: "asyncio.Future[dict[Job, Outcome]]") -> None:
        """Sets the results of jobs, and schedules the next ones."""
        lane.finish(sum(len(job.items) for job in jobs), time.monotonic() - started)
        self._schedule(lane)
        for job, outcome in done.result().items():
            if job.future.done():
                continue
            if isinstance(outcome, BaseException):
                job.future.set_exception(outcome)
            else:
                job.future.set_result(outcome)

    def _compute_wanted(self, jobs: list[Job], can_repeat: bool) -> dict[Job, Outcome]:
        """The results of the jobs that a client still waits for; runs in the thread of a lane."""
        wanted = [job for job in jobs if not job.future.done()]
        self.metrics.dropped.inc(len(jobs) - len(wanted))
        return dict(zip(wanted, self._compute(wanted, can_repeat), strict=True)) if wanted else {}

    def _compute(self, jobs: list[Job], can_repeat: bool) -> list[Outcome]:
        """The results of each job; if one fails, each is computed by itself if that is possible, or all fail."""
        started = time.monotonic()
        try:
            items = list(chain.from_iterable(job.items for job in jobs))
            results = list(jobs[0].compute(items))
        except BaseException as error:
            if not can_repeat:
                _log.exception("%d steps of streams failed", len(jobs))
                return [StepError() for _ in jobs]
            if len(jobs) == 1:
                return [RefusedError(400, str(error)) if isinstance(error, AntiphonError) else error]
            return [outcome for job in jobs for outcome in self._compute([job], can_repeat)]
        self.metrics.batch_items.observe(len(items))
        self.metrics.batch_seconds.observe(time.monotonic() - started)
        remaining = iter(results)
        return [list(islice(remaining, len(job.items))) for job in jobs]
