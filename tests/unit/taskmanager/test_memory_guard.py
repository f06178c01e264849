"""A guard ends what exceeds its memory, by what the task manager's table has given to it."""

from __future__ import annotations

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
        self._fails = fails

    async def memory_mb(self) -> dict[ProcessKey, int]:
        self.looks += 1
        return self.used

    async def exceeding(self) -> dict[ProcessKey, int]:
        return self.exceeded

    async def end(self, key: ProcessKey, reason: str) -> None:
        assert "MiB" in reason
        self.ended.append(key)
        if self._fails:
            raise RetryLater("the supervisor has stopped")


def table() -> TableState:
    """A slot of 1000 MiB, and a driver of 500 MiB."""
    profile = ResourceProfile(cores=1, memory_mb=1000)
    slots = {SLOT: SimpleNamespace(id=SLOT, allocation=SimpleNamespace(profile=profile))}
    drivers = SimpleNamespace(by_attempt={(JOB, 1): SimpleNamespace(memory_mb=500)})
    return cast("TableState", SimpleNamespace(slots=slots, drivers=drivers))


def guard(processes: Processes, limit: str, available: int) -> MemoryGuard:
    texts = {"taskmanager.memory.limit": limit, "taskmanager.memory.reserve": "256m"}
    return MemoryGuard(Configuration().with_texts(texts, "test"), processes, table, lambda: available)


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
    await guard(processes, limit, 5000).look()
    assert processes.ended == [EXECUTOR, DRIVER]
