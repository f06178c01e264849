"""A guard ends what exceeds its memory, by what the task manager's table has given to it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import AllocationId, ExecutorId, JobId
from emberkeep.slots.model import ResourceProfile
from emberkeep.slots.table.state import TableState
from emberkeep.taskmanager.memory_guard import MemoryGuard
from emberkeep.taskmanager.ports import DriverKey, ExecutorKey, ProcessKey

pytestmark = pytest.mark.anyio

JOB, SLOT = JobId("a" * 32), AllocationId("b" * 32)
DRIVER = DriverKey(job_id=JOB, attempt=1)
EXECUTOR = ExecutorKey(job_id=JOB, attempt=1, allocation_id=SLOT, executor_id=ExecutorId("1"))
UNKNOWN = ExecutorKey(job_id=JOB, attempt=1, allocation_id=AllocationId("c" * 32), executor_id=ExecutorId("2"))


class Processes:
    def __init__(self, used: dict[ProcessKey, int], *, fails: bool = False) -> None:
        self.used = used
        self.exceeded: dict[ProcessKey, int] = {}
        self.ended: list[ProcessKey] = []
        self.looks = 0
        self.looks_at_kills = 0
        self.stuck: set[ProcessKey] = set()  # killed, but their file system does not answer
        self._fails = fails

    async def memory_mb(self) -> dict[ProcessKey, int]:
        self.looks += 1
        return self.used

    async def exceeding(self) -> dict[ProcessKey, int]:
        self.looks_at_kills += 1
        return self.exceeded

    async def end(self, key: ProcessKey, reason: str) -> None:
        assert "MiB" in reason
        self.ended.append(key)
        if key in self.stuck:
            await asyncio.Event().wait()
        if self._fails:
            raise RetryLater("the supervisor has stopped")


def table(driver_mb: int = 500) -> TableState:
    """A slot of 1000 MiB, and a driver."""
    profile = ResourceProfile(cores=1, memory_mb=1000)
    slots = {SLOT: SimpleNamespace(id=SLOT, allocation=SimpleNamespace(profile=profile))}
    drivers = SimpleNamespace(by_attempt={(JOB, 1): SimpleNamespace(memory_mb=driver_mb)})
    return cast("TableState", SimpleNamespace(slots=slots, drivers=drivers))


def guard(processes: Processes, limit: str, available: int, given: TableState | None = None) -> MemoryGuard:
    texts = {"taskmanager.memory.limit": limit, "taskmanager.memory.reserve": "256m"}
    configuration = Configuration().with_texts(texts, "test")
    return MemoryGuard(configuration, processes, lambda: given or table(), lambda: available, end_seconds=0.01)


@pytest.mark.parametrize("fails", [False, True])
async def test_drivers_and_executors_are_measured_by_what_each_was_given(fails: bool) -> None:
    processes = Processes({DRIVER: 600, EXECUTOR: 600, UNKNOWN: 9000}, fails=fails)
    watched = guard(processes, "always", 5000)
    for _ in range(2):
        await watched.look()
    assert processes.ended == [DRIVER]


@pytest.mark.parametrize(("available", "looks"), [(256, 0), (255, 2)])
async def test_processes_are_measured_only_while_the_machine_is_short(available: int, looks: int) -> None:
    processes = Processes({EXECUTOR: 1100})
    watched = guard(processes, "when-short", available)
    for _ in range(2):
        await watched.look()
    assert processes.looks == looks
    assert processes.ended == [EXECUTOR] * (looks // 2)


@pytest.mark.parametrize("limit", ["none", "when-short", "always"])
async def test_a_process_of_which_the_kernel_has_ended_a_part_is_ended(limit: str) -> None:
    processes = Processes({})
    processes.exceeded = {EXECUTOR: 1000, DRIVER: 500}
    await guard(processes, limit, 5000).look_at_kills()
    assert processes.ended == [EXECUTOR, DRIVER]


async def test_a_process_that_was_given_nothing_is_left_out() -> None:
    """An ended driver is listed with 0 MiB until its end is acknowledged."""
    processes = Processes({DRIVER: 600, EXECUTOR: 1100})
    watched = guard(processes, "always", 5000, table(driver_mb=0))
    for _ in range(2):
        await watched.look()
    assert processes.ended == [EXECUTOR]


@pytest.mark.parametrize("limit", ["when-short", "always"])
async def test_a_process_that_cannot_end_now_protects_no_other(limit: str) -> None:
    processes = Processes({DRIVER: 900, EXECUTOR: 1100})
    processes.stuck = {DRIVER}
    watched = guard(processes, limit, 100)
    async with asyncio.timeout(60):
        for _ in range(6):
            await watched.look()
            await watched.look_at_kills()
    assert processes.ended.count(DRIVER) == 1, "it is killed already"
    assert EXECUTOR in processes.ended


async def test_the_kernel_is_asked_more_often_than_the_processes_are_measured() -> None:
    """A job may fail within a second of the end of a worker, and its history then has no other reason."""
    processes = Processes({})
    running = asyncio.create_task(guard(processes, "always", 5000).run())
    try:
        async with asyncio.timeout(60):
            while processes.looks < 2:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert processes.looks_at_kills >= 10
