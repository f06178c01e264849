"""What a JobManager notes about a job: each thing once, also when leaders change."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from emberkeep.base.request_context import called_by
from emberkeep.blocklist.model import PERMANENT, BlockAction, BlockedNode
from emberkeep.chronicle.occurrence import Occurrence, What
from emberkeep.chronicle.terms import leader_terms
from emberkeep.chronicle.timeline import BandKind, timeline
from emberkeep.jobs.model import AttemptOutcome, ExceptionEntry, FailureKind, JobStatus
from emberkeep.lifecycle.model import Procedure, ProcedureRequest
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import executor_in, graph
from tests.unit.jobmanager.memory_store import FailingStore

JOB = graph(1).job_id
KILLED = AttemptOutcome(exit_code=137, kind=FailureKind.LOST, message="killed by SIGKILL")


def whats(stream: list[Occurrence]) -> list[str]:
    """Return types, and of a state which one."""
    return [each.details["status"] if each.what == What.STATUS else str(each.what) for each in stream]


def test_a_job_s_way_is_noted_in_order() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            task_manager = await cluster.add()
            master = await cluster.run_job(count=1)
            await cluster.holds(lambda: task_manager.allocations)
            (allocation,) = task_manager.allocations.values()
            await master.beat(1, waiting="1 slot of 1024 MiB")
            await master.beat(1, executors=(executor_in(allocation, task_manager.info, 1),))
            await master.beat(1, executors=(executor_in(allocation, task_manager.info, 1),))
            task_manager.exits(JOB, 1, KILLED)
            await cluster.reaches(JOB, JobStatus.RESTARTING)
            await cluster.next_jobmaster(JOB, 2)
            with called_by("ana"):
                await service.gateway.cancel(JOB)
            task_manager.exits(JOB, 2, KILLED)
            await cluster.reaches(JOB, JobStatus.CANCELED)
            stream = cluster.chronicle.stream(JOB)
        assert whats(stream) == [
            "submitted",
            "attempt-started",
            "INITIALIZING",
            "RUNNING",
            "slots-missing",
            "executors-registered",
            "slots-complete",
            "attempt-ended",
            "RESTARTING",
            "attempt-started",
            "INITIALIZING",
            "RUNNING",
            "cancel-requested",
            "CANCELLING",
            "attempt-ended",
            "CANCELED",
        ]
        (asked,) = [each for each in stream if each.what == What.CANCEL_REQUESTED]
        assert asked.by == "ana"
        lost, cancelled = [each for each in stream if each.details.get("cause")]
        assert lost.message == "attempt 1 was lost: killed by SIGKILL"
        assert cancelled.message == "attempt 2 was cancelled: killed by SIGKILL"
        kinds = [band.kind for band in timeline(stream).bands]
        assert kinds[2:6] == [BandKind.RUNNING, BandKind.WAITING, BandKind.RUNNING, BandKind.RESTARTING]

    in_virtual_time(scenario)


def test_a_new_leader_continues_the_stream_and_repeats_nothing() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        entry = ExceptionEntry(timestamp_ms=0, attempt=1, kind="ExecutorLost", message="executor 7 was lost")
        async with cluster.leading():
            task_manager = await cluster.add()
            master = await cluster.run_job(count=1)
            await cluster.holds(lambda: task_manager.allocations)
            (allocation,) = task_manager.allocations.values()
            await master.beat(1, executors=(executor_in(allocation, task_manager.info, 1),))
            before = whats(cluster.chronicle.stream(JOB))
        await asyncio.sleep(1)
        async with cluster.leading() as service:
            await cluster.holds(lambda: service.gateway.epoch() == 2)
            await task_manager_registers(cluster)
            master.service = service
            await master.register(1, executors=(executor_in(allocation, task_manager.info, 1),), exceptions=(entry,))
            await cluster.reaches(JOB, JobStatus.RUNNING)
            await master.ends(AttemptOutcome(exit_code=0))
            await cluster.reaches(JOB, JobStatus.FINISHED)
            stream = cluster.chronicle.stream(JOB)
        assert whats(stream) == [*before, "reattached", "attempt-ended", "FINISHED"]
        assert [band.kind for band in timeline(stream).bands].count(BandKind.RUNNING) == 2, "with a wait for slots"

    in_virtual_time(scenario)


async def task_manager_registers(cluster: SmallCluster) -> None:
    for task_manager in cluster.task_managers:
        task_manager.service = cluster.service
        await task_manager.register()


def test_leaders_and_nodes_are_in_the_cluster_s_stream() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            await cluster.add()
            entry = BlockedNode(
                id="tm-1", action=BlockAction.MARK_BLOCKED, start_ms=1, end_ms=PERMANENT, causes=("disk",)
            )
            with called_by("bo"):
                await service.gateway.block(entry, merge=False)
                await service.gateway.unblock(entry.place)
        async with cluster.leading():
            await task_manager_registers(cluster)
            stream = cluster.chronicle.stream()
        assert [(each.what, each.by) for each in stream if each.what != What.LEADER_ENDED] == [
            ("leader-started", ""),
            ("task-manager-registered", ""),
            ("blocked", "bo"),
            ("unblocked", "bo"),
            ("leader-started", ""),
        ]
        blocked = stream[2]
        assert (blocked.message, blocked.node) == ("bo blocked node tm-1: disk", "tm-1")
        newest, oldest = leader_terms(stream)
        assert (newest.epoch, newest.ended_ms, oldest.epoch) == (2, None, 1)
        assert oldest.why_ended.startswith("it gave up leadership")

    in_virtual_time(scenario)


def test_a_leader_with_other_settings_says_which() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading():
            await cluster.add()
        for interval in ("10s", "10s", "20s"):
            cluster.shared_settings = {"heartbeat.interval": interval}
            async with cluster.leading():
                pass
        changes = [
            each.message.partition("heartbeat.interval: ")[2] for each in noted(cluster, What.CONFIGURATION_CHANGED)
        ]
        assert changes == ["not set → 10s", "10s → 20s"]

    in_virtual_time(scenario)


def test_a_task_manager_that_is_lost_and_one_with_work_that_falls_silent_are_noted() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading():
            for name in ("tm-1", "tm-2", "tm-3"):
                await cluster.add(name)
            master = await cluster.run_job(count=1)
            await cluster.holds(lambda: any(each.allocations for each in cluster.task_managers))
            (busy,) = (each for each in cluster.task_managers if each.allocations)
            await busy.beat()
            held = tuple(executor_in(allocation, busy.info, 1) for allocation in busy.allocations.values())
            idle = next(each for each in cluster.task_managers if each is not busy and not each.drivers)
            for what, silent in ((What.TASK_MANAGER_SILENT, busy), (What.TASK_MANAGER_LOST, idle)):
                cluster.silent.add(silent.info.instance)
                async with asyncio.timeout(600):
                    while not noted(cluster, what):
                        await asyncio.sleep(1.0)  # in virtual time
                        await master.beat(1, executors=held)
                (said,) = noted(cluster, what)
                assert (said.task_manager, said.node) == (silent.info.id, silent.info.id)
                cluster.silent.clear()
            await cluster.holds(partial(noted, cluster, What.TASK_MANAGER_BACK))
            await cluster.holds(lambda: len(noted(cluster, What.TASK_MANAGER_REGISTERED)) == 4)

    in_virtual_time(scenario)


@pytest.mark.req("BLK-19")
def test_a_full_disk_and_its_room_are_noted_once_each() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            task_manager = await cluster.add()
            for free_mb, expected in ((150, 1), (150, 1), (90_000, 2), (0, 3)):
                task_manager.disk_free_mb = free_mb
                await task_manager.beat()
                view = await service.gateway.task_manager(task_manager.info.id)
                assert view.disk_full is (free_mb <= 150)
                assert len([*noted(cluster, What.DISK_FULL), *noted(cluster, What.DISK_HAS_ROOM)]) == expected
        found = [*noted(cluster, What.DISK_FULL), *noted(cluster, What.DISK_HAS_ROOM)]
        assert [each.message for each in found] == [
            "task manager tm-1 on node tm-1 gets nothing new: only 150 MiB of its disk's 100000 MiB are free",
            "task manager tm-1 on node tm-1 gets nothing new: nothing can be written to its disk",
            "task manager tm-1 on node tm-1 gets new work again: 90000 MiB of its disk's 100000 MiB are free",
        ]

    in_virtual_time(scenario)


def noted(cluster: SmallCluster, what: What) -> list[Occurrence]:
    return [each for each in cluster.chronicle.stream() if each.what == what]


def test_a_request_is_noted_with_who_asked_for_it() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            await cluster.add()
            await cluster.run_job()
            request = ProcedureRequest(trigger_id="1" * 32, procedure=Procedure.SAVEPOINT, requested_ms=1)
            with called_by("ana"):
                await service.gateway.request_procedure(JOB, request)
                await service.gateway.request_procedure(JOB, request)  # repeated
        (asked,) = [each for each in cluster.chronicle.stream(JOB) if each.what == What.REQUESTED]
        assert (asked.by, asked.message) == ("ana", "ana asked for a savepoint")

    in_virtual_time(scenario)
