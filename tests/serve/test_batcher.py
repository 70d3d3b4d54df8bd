"""Jobs that wait are computed together, and no job suffers from another one."""

import asyncio
import threading

import pytest

from antiphon.exceptions import InputError
from antiphon.serve.batcher import MAX_BATCH, PART, Batcher, Job, Lane
from antiphon.serve.guards import RefusedError
from antiphon.serve.monitoring import ServiceMetrics


class Gate:
    """Work that can be held back, and what it was given."""

    def __init__(self):
        self.calls, self.is_open = [], threading.Event()

    def compute(self, items):
        self.calls.append(list(items))
        assert self.is_open.wait(30)
        if "bad" in items:
            raise InputError("a bad item")
        if "bug" in items:
            raise ZeroDivisionError
        return [item.upper() for item in items]


def run(scenario, **settings):
    """Runs a scenario with a batcher and a gate."""

    async def main():
        metrics = ServiceMetrics()
        batcher = Batcher(**{"wait_seconds": 0.0, "max_queue": 100, "metrics": metrics} | settings)
        gate = Gate()
        try:
            return await scenario(batcher, gate)
        finally:
            gate.is_open.set()
            batcher.stop()

    return asyncio.run(main())


async def begun(batcher, gate):
    """Has the thread busy with a first job."""
    first = asyncio.ensure_future(batcher.submit("first", ["first"], gate.compute))
    while not gate.calls:
        await asyncio.sleep(0.001)
    return first


def test_what_waits_is_computed_together_by_key_and_in_order():
    async def scenario(batcher, gate):
        first = await begun(batcher, gate)
        given = [("k", ["a", "b"]), ("other", ["x"]), ("k", ["c"])]
        rest = [asyncio.ensure_future(batcher.submit(key, items, gate.compute)) for key, items in given]
        await asyncio.sleep(0)
        gate.is_open.set()
        results = await asyncio.gather(first, *rest)
        assert results == [["FIRST"], ["A", "B"], ["X"], ["C"]]
        assert gate.calls == [["first"], ["a", "b", "c"], ["x"]]

    run(scenario)


def test_a_batch_has_a_largest_size():
    async def scenario(batcher, gate):
        await begun(batcher, gate)
        jobs = [asyncio.ensure_future(batcher.submit("k", [str(n)], gate.compute)) for n in range(MAX_BATCH + 5)]
        await asyncio.sleep(0)
        gate.is_open.set()
        await asyncio.gather(*jobs)
        assert [len(call) for call in gate.calls] == [1, MAX_BATCH, 5]

    run(scenario)


def test_a_job_that_fails_fails_alone():
    async def scenario(batcher, gate):
        await begun(batcher, gate)
        jobs = [asyncio.ensure_future(batcher.submit("k", [item], gate.compute)) for item in ("a", "bad", "bug", "b")]
        await asyncio.sleep(0)
        gate.is_open.set()
        good, bad, bug, better = await asyncio.gather(*jobs, return_exceptions=True)
        assert (good, better) == (["A"], ["B"])
        assert isinstance(bad, RefusedError)
        assert (bad.status, bad.message) == (400, "a bad item")
        assert isinstance(bug, ZeroDivisionError)

    run(scenario)


def test_steps_of_streams_that_fail_are_not_computed_again():
    async def scenario(batcher, gate):
        await begun(batcher, gate)
        steps = [
            asyncio.ensure_future(batcher.submit("pool", [item], gate.compute, of_stream=True)) for item in ("a", "bug")
        ]
        await asyncio.sleep(0)
        gate.is_open.set()
        failed = await asyncio.gather(*steps, return_exceptions=True)
        assert [error.status for error in failed] == [500, 500]
        assert gate.calls[1:] == [["a", "bug"]]

    run(scenario)


def test_a_full_queue_refuses_with_a_time_to_come_back():
    async def scenario(batcher, gate):
        await begun(batcher, gate)
        waiting = asyncio.ensure_future(batcher.submit("k", ["a", "b"], gate.compute))
        await asyncio.sleep(0)
        with pytest.raises(RefusedError) as refused:
            await batcher.submit("k", ["c", "d"], gate.compute)
        assert refused.value.status == 429
        assert refused.value.headers["Retry-After"]
        assert batcher.waiting == 2
        gate.is_open.set()
        assert await waiting == ["A", "B"]

    run(scenario, max_queue=3)


def test_a_job_whose_client_has_gone_is_not_computed():
    async def scenario(batcher, gate):
        await begun(batcher, gate)
        gone = asyncio.ensure_future(batcher.submit("k", ["gone"], gate.compute))
        stays = asyncio.ensure_future(batcher.submit("k", ["stays"], gate.compute))
        await asyncio.sleep(0)
        gone.cancel()
        gate.is_open.set()
        assert await stays == ["STAYS"]
        assert gate.calls[1:] == [["stays"]]

    run(scenario)


def test_a_request_with_many_or_long_items_is_computed_in_parts():
    async def scenario(batcher, gate):
        gate.is_open.set()
        many = await batcher.submit_parts("k", ["a"] * (PART + 1), gate.compute, lambda _: 1)
        assert (many, [len(call) for call in gate.calls]) == (["A"] * (PART + 1), [PART + 1])
        gate.calls.clear()
        long = await batcher.submit_parts("k", ["a"] * 4 + ["b"] * 4, gate.compute, lambda item: PART - (item == "b"))
        assert long == ["A"] * 4 + ["B"] * 4
        assert [len(call) for call in gate.calls] == [2] * 4

    run(scenario)


def test_the_parts_of_a_request_that_no_client_waits_for_are_not_computed():
    async def scenario(batcher, gate):
        request = asyncio.ensure_future(batcher.submit_parts("k", [*"abcdef"], gate.compute, lambda _: MAX_BATCH))
        while not gate.calls:
            await asyncio.sleep(0.001)
        request.cancel()
        gate.is_open.set()
        assert await batcher.submit("other", ["x"], gate.compute) == ["X"]
        assert gate.calls == [["a"], ["x"]]

    run(scenario)


def waiting_since(lane, *times):
    for arrived in times:
        lane.add(Job("k", ["a"], list, None, 1, arrived))
    return lane


def test_the_first_job_of_an_idle_lane_waits_no_longer_for_more_that_come():
    assert waiting_since(Lane(8), 10.0, 10.003).due(0.004) == 10.004


def test_jobs_gather_after_a_batch_until_as_many_wait_as_before():
    lane = Lane(8, finished=10.0, seconds=0.06, expected=3)
    assert waiting_since(lane, 9.97, 9.98).due(0.004) == pytest.approx(10.01)
    assert waiting_since(lane, 10.005).due(0.004) < 10.0


def test_jobs_gather_no_longer_than_the_batch_took_or_the_lane_allows():
    times = [10.0 + n / 200 for n in range(20)]
    assert waiting_since(Lane(64, finished=10.0, seconds=0.05, expected=30), *times[:10]).due(0.004) == 10.05
    assert waiting_since(Lane(64, 0.02, finished=10.0, seconds=0.05, expected=30), *times[:4]).due(0.004) == 10.02


def test_a_long_computation_never_holds_steps_of_streams_up():
    async def scenario(batcher, gate):
        first = await begun(batcher, gate)
        assert await batcher.submit("pool", ["step"], list, of_stream=True) == ["step"]
        gate.is_open.set()
        assert await first == ["FIRST"]

    run(scenario)


def test_the_first_job_waits_a_moment_for_others():
    async def scenario(batcher, gate):
        gate.is_open.set()
        jobs = [asyncio.ensure_future(batcher.submit("k", [item], gate.compute)) for item in "abc"]
        await asyncio.gather(*jobs)
        assert gate.calls == [["a", "b", "c"]]

    run(scenario, wait_seconds=0.5)


def test_a_stopped_batcher_finishes_what_waits_and_takes_nothing_new():
    async def scenario(batcher, gate):
        first = await begun(batcher, gate)
        waiting = [asyncio.ensure_future(batcher.submit(key, [key], gate.compute)) for key in "abc"]
        await asyncio.sleep(0)
        threading.Timer(0.05, gate.is_open.set).start()  # after the stop, which waits for the thread
        batcher.stop()
        with pytest.raises(RefusedError) as refused:
            await batcher.submit("k", ["b"], gate.compute)
        assert refused.value.status == 503
        found = asyncio.gather(first, *waiting)
        assert await asyncio.wait_for(found, 30) == [["FIRST"], ["A"], ["B"], ["C"]]

    run(scenario)
