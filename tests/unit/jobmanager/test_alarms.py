"""Deadlines that ring once, at their time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

from emberkeep.base.ids import JobId
from emberkeep.jobmanager.alarms import LONGEST_SLEEP, SHORTEST_SLEEP, Alarms
from tests.unit.jobmanager.cluster import in_virtual_time

A, B, C = JobId("a" * 32), JobId("b" * 32), JobId("c" * 32)


class Bench:
    """Running alarms, what has rung when, and a clock that can be stopped."""

    def __init__(self) -> None:
        self.rung: list[tuple[float, JobId]] = []
        self.stopped_at: float | None = None
        self.readings: list[float] = []  # when the alarms have read the clock
        self.alarms = Alarms(self._now, lambda key: self.rung.append((self.time(), key)))

    def time(self) -> float:
        return round(asyncio.get_running_loop().time(), 6)

    def _now(self) -> float:
        self.readings.append(self.time())
        return self.time() if self.stopped_at is None else self.stopped_at


def running(scenario: Callable[[Bench, float], Awaitable[None]]) -> None:
    """Run a scenario with the bench and the time of its begin."""

    async def run() -> None:
        bench = Bench()
        task = asyncio.create_task(bench.alarms.run())
        await asyncio.sleep(0)
        try:
            await scenario(bench, bench.time())
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    in_virtual_time(run)


def test_each_deadline_rings_once_at_its_time() -> None:
    async def scenario(bench: Bench, start: float) -> None:
        for key, seconds in ((A, 3.0), (B, 0.2), (C, 1.1)):
            bench.alarms.set(key, start + seconds)
        await asyncio.sleep(10.0)
        assert bench.rung == [(start + 0.2, B), (start + 1.1, C), (start + 3.0, A)]

    running(scenario)


def test_a_deadline_that_is_moved_or_dropped_does_not_ring_at_its_old_time() -> None:
    async def scenario(bench: Bench, start: float) -> None:
        for key in (A, B, C):
            bench.alarms.set(key, start + 1.0)
        bench.alarms.set(A, start + 2.0)
        bench.alarms.set(B, start + 0.5)
        bench.alarms.set(C, None)
        await asyncio.sleep(10.0)
        assert bench.rung == [(start + 0.5, B), (start + 2.0, A)]

    running(scenario)


def test_a_deadline_that_has_rung_can_be_set_again() -> None:
    async def scenario(bench: Bench, start: float) -> None:
        bench.alarms.set(A, start)
        await asyncio.sleep(1.0)
        bench.alarms.set(A, start + 3.0)
        await asyncio.sleep(5.0)
        assert bench.rung == [(start, A), (start + 3.0, A)]

    running(scenario)


def test_the_clock_is_read_often_enough_to_notice_a_stall() -> None:
    async def scenario(bench: Bench, start: float) -> None:
        bench.alarms.set(A, start + 60.0)
        await asyncio.sleep(30.0)
        gaps = [after - before for before, after in itertools.pairwise(bench.readings)]
        assert max(gaps) <= LONGEST_SLEEP + 0.001

    running(scenario)


def test_a_deadline_that_stays_near_while_the_clock_stands_still_is_not_polled_without_pause() -> None:
    async def scenario(bench: Bench, start: float) -> None:
        bench.stopped_at = start
        bench.alarms.set(A, start + SHORTEST_SLEEP / 10)
        await asyncio.sleep(100 * SHORTEST_SLEEP)
        assert len(bench.readings) < 105
        assert bench.rung == []
        bench.stopped_at = None
        await asyncio.sleep(1.0)
        assert [key for _, key in bench.rung] == [A]

    running(scenario)
