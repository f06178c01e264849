"""From a JobMaster's lost executors to an entry in the blocklist, through a JobManager with fakes around it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from emberkeep.base.ids import AllocationId, ExecutorId, TaskManagerId
from emberkeep.blocklist.model import BlockAction, BlockedNode, Place, PlaceKind
from emberkeep.chronicle.occurrence import What
from emberkeep.jobmanager.service import JobManagerService
from emberkeep.jobs.model import ExceptionEntry
from emberkeep.protocol.messages.job_master_reports import ExecutorView
from emberkeep.protocol.messages.task_manager_reports import ProcessState
from tests.support.simulator.virtual_loop import VirtualClock
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import FakeJobMaster
from tests.unit.jobmanager.memory_store import FailingStore

pytestmark = pytest.mark.req("BLK-19")

SETTINGS = {
    "blocklist.detection.enabled": "true",
    "blocklist.detection.jobs": "2",
    "blocklist.detection.max-share": "0.34",
    "blocklist.detection.duration": "10min",
    "blocklist.detection.pause-after-unblock": "20min",
}
BAD, GOOD = "tm-2", "tm-3"


def lost(at_ms: int, on: str = BAD, words: str = "Input/output error") -> ExceptionEntry:
    message = f"executor 1 on {on} ended with exit code 52"
    return ExceptionEntry(
        timestamp_ms=at_ms,
        attempt=1,
        kind="ExecutorLost",
        message=message,
        traceback=f"{message}\njava.io.IOException: {words}",
        task_manager=on,
    )


def runs_on(task_manager: str) -> ExecutorView:
    return ExecutorView(
        executor_id=ExecutorId("2"),
        allocation_id=AllocationId("e" * 32),
        task_manager=TaskManagerId(task_manager),
        host="10.0.0.3",
        state=ProcessState.RUNNING,
        registered=True,
        cores=1,
        heap_mb=512,
    )


class Bad:
    """Three nodes, and jobs whose executors fail on one of them and run on another."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.cluster = SmallCluster(FailingStore(), settings)
        self.masters: list[FakeJobMaster] = []
        self.exceptions: tuple[ExceptionEntry, ...] = ()

    async def up(self, *more: str) -> None:
        for name in ("tm-1", BAD, GOOD, *more):
            await self.cluster.add(name)
        self.masters = [await self.cluster.run_job(number) for number in (1, 2)]

    async def go_on(self, service: JobManagerService) -> None:
        """Another leader: task managers and jobs register with it."""
        for master in self.masters:
            master.service = service
        await asyncio.sleep(5.0)
        for master in self.masters:
            await master.register(1, exceptions=self.exceptions)

    async def beats(self, seconds: float) -> None:
        """All jobs say the same for so long."""
        for _ in range(round(seconds)):
            for master in self.masters:
                told: dict[str, Any] = {"exceptions": self.exceptions, "executors": (runs_on(GOOD),)}
                await master.beat(1, **told)
            await asyncio.sleep(1.0)

    async def entries(self) -> tuple[BlockedNode, ...]:
        return (await self.cluster.service.gateway.blocklist()).entries  # type: ignore[return-value]


def test_a_bad_node_is_blocked_for_a_while_and_whoever_unblocks_it_is_respected() -> None:
    async def scenario() -> None:
        bad = Bad(SETTINGS)
        async with bad.cluster.leading() as service:
            await bad.up()
            await bad.beats(5.0)
            bad.exceptions = (lost(1),)
            await bad.beats(20.0)
            assert not await bad.entries(), "they have not worked elsewhere for long"
            await bad.beats(20.0)
            (entry,) = await bad.entries()
            assert (entry.id, entry.action) == (BAD, BlockAction.MARK_BLOCKED)
            assert entry.end_ms - entry.start_ms == 600_000
            assert entry.cause.startswith("detected: input/output error: processes of 2 jobs")
            (said,) = (each for each in bad.cluster.chronicle.stream() if each.what == What.DETECTED)
            assert (said.node, said.by, said.details["cause"]) == (BAD, "", entry.cause)

            await bad.beats(300.0)
            assert await bad.entries() == (entry,), "what was told before is not told anew"
            await service.gateway.unblock(Place(PlaceKind.NODE, BAD))
            bad.exceptions = (lost(1), lost(2))
            await bad.beats(120.0)
            assert not await bad.entries(), "somebody wants it to be used"
            await bad.beats(1200.0)
            bad.exceptions = (lost(1), lost(2), lost(3))
            await bad.beats(60.0)
            assert [entry.id for entry in await bad.entries()] == [BAD]
            await bad.beats(700.0)
            assert not await bad.entries(), "its time is over"

    in_virtual_time(scenario)


def test_the_next_leader_respects_it_too_and_takes_no_old_word() -> None:
    async def scenario() -> None:
        bad = Bad(SETTINGS)
        async with bad.cluster.leading() as service:
            await bad.up()
            await service.gateway.block(
                BlockedNode(id=BAD, action=BlockAction.MARK_BLOCKED, start_ms=0, causes=("x",)), merge=False
            )
            await service.gateway.unblock(Place(PlaceKind.NODE, BAD))
        bad.exceptions = (lost(1),)
        async with bad.cluster.leading() as service:
            await bad.go_on(service)
            await bad.beats(60.0)
            assert not await bad.entries()
            bad.exceptions = (lost(1), lost(2))
            await bad.beats(60.0)
            assert not await bad.entries(), "unblocked by hand, as far as this leader knows"

    in_virtual_time(scenario)


def test_the_next_leader_respects_only_what_is_left_of_the_pause_and_only_what_was_unblocked_by_hand() -> None:
    async def scenario() -> None:
        bad = Bad(SETTINGS)
        async with bad.cluster.leading() as service:
            await bad.up()
            until = VirtualClock(bad.cluster.loop).now_ms() + 60_000
            timed = BlockedNode(id=BAD, action=BlockAction.MARK_BLOCKED, start_ms=0, end_ms=until, causes=("x",))
            await service.gateway.block(timed, merge=False)
            await bad.beats(70.0)
            assert not await bad.entries(), "its time is over"
        async with bad.cluster.leading() as service:
            await bad.go_on(service)
            bad.exceptions = (lost(1),)
            await bad.beats(60.0)
            assert [entry.id for entry in await bad.entries()] == [BAD], "nobody has unblocked it"
            await service.gateway.unblock(Place(PlaceKind.NODE, BAD))
            await bad.beats(900.0)
        async with bad.cluster.leading() as service:
            await bad.go_on(service)
            bad.exceptions = (lost(1), lost(2))
            await bad.beats(240.0)
            assert not await bad.entries(), "19 of 20 minutes"
            bad.exceptions = (lost(1), lost(2), lost(3))
            await bad.beats(120.0)
            assert [entry.id for entry in await bad.entries()] == [BAD]

    in_virtual_time(scenario)


def test_a_blocked_node_that_is_taken_away_makes_no_room_for_another() -> None:
    async def scenario() -> None:
        bad = Bad({**SETTINGS, "taskmanager.orphan-timeout": "30s"})
        async with bad.cluster.leading() as service:
            await bad.up("tm-4", "tm-5")  # 0.34 of 4 nodes is one, and of 5 as well
            await bad.beats(5.0)
            bad.exceptions = (lost(1),)
            await bad.beats(60.0)
            assert [entry.id for entry in await bad.entries()] == [BAD]
            bad.cluster.silent.update(each.info.instance for each in bad.cluster.task_managers if each.info.id == BAD)
            await bad.beats(200.0)
            assert len(await service.gateway.task_managers()) == 4
            bad.exceptions = (lost(1), lost(2, "tm-4", "Input/output error"))
            await bad.beats(60.0)
            assert [entry.id for entry in await bad.entries()] == [BAD]
            await service.gateway.unblock(Place(PlaceKind.NODE, BAD))
            await bad.beats(5.0)
            assert [entry.id for entry in await bad.entries()] == ["tm-4"], "it would have been found"

    in_virtual_time(scenario)


def test_nobody_looks_unless_it_is_asked_for() -> None:
    async def scenario() -> None:
        bad = Bad({})
        async with bad.cluster.leading():
            await bad.up()
            await bad.beats(5.0)
            bad.exceptions = (lost(1),)
            await bad.beats(120.0)
            assert not await bad.entries()

    in_virtual_time(scenario)
