"""What the reports of task managers change: slots that they hold, contact with them, evacuations."""

from __future__ import annotations

import asyncio

import pytest

from emberkeep.base.errors import Absent, RetryLater
from emberkeep.base.ids import TaskManagerId
from emberkeep.blocklist.model import BlockAction, BlockedNode, EvacuatedDrivers
from emberkeep.jobs.model import AttemptOutcome, FailureKind, JobStatus
from emberkeep.protocol.messages.task_manager_reports import DriverReport, ProcessState, StandbyReport
from emberkeep.usage.history import SHORTEST_STEP_MS
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import graph
from tests.unit.jobmanager.memory_store import FailingStore

JOB = graph(1).job_id


def test_slots_that_are_reported_stay_their_jobs_and_are_given_once() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            task_manager = await cluster.add()
            master = await cluster.run_job(count=2)
            for _ in range(300):
                await asyncio.sleep(1.0)
                await master.beat(2)
            assert len(task_manager.allocations) == 2
            view = await service.gateway.task_manager(task_manager.info.id)
            assert (view.free_slots, view.away, view.blocked, view.evacuated) == (2, False, False, False)

    in_virtual_time(scenario)


def test_drivers_take_and_free_their_places_with_the_report_that_says_so() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            task_manager = await cluster.add()
            cluster.silent.add(task_manager.info.instance)
            driver = DriverReport(job_id=JOB, attempt=1, state=ProcessState.RUNNING, pid=7, memory_mb=640)
            for drivers, free_places in (({(JOB, 1): driver}, 3), ({}, 4)):
                task_manager.drivers = drivers
                await task_manager.beat()
                view = await service.gateway.task_manager(task_manager.info.id)
                assert view.free_driver_places == free_places

    in_virtual_time(scenario)


def test_what_is_kept_for_a_job_that_restarts_is_told_apart_from_what_is_free_and_from_what_runs() -> None:
    lost = AttemptOutcome(exit_code=137, kind=FailureKind.LOST, message="the driver was killed")

    async def scenario() -> None:
        cluster = SmallCluster(FailingStore(), {"restart-strategy.fixed-delay.delay": "30s"})
        async with cluster.leading() as service:
            task_manager = await cluster.add()
            master = await cluster.run_job(count=2)
            for _ in range(100):
                await asyncio.sleep(1.0)
                await master.beat(2)
            assert (await cluster.view(JOB)).driver_pid
            task_manager.exits(JOB, 1, lost)
            task_manager.allocations = {}
            job = await cluster.reaches(JOB, JobStatus.RESTARTING)
            assert (job.driver_has_ended, job.driver_pid, job.driver_task_manager) == (True, 0, task_manager.info.id)
            await asyncio.sleep(5.0)
            view = await service.gateway.task_manager(task_manager.info.id)
            assert (view.free_slots, [slot.job_id for slot in view.kept]) == (2, [JOB, JOB])

            await cluster.next_jobmaster(JOB, 2, 1)
            view = await service.gateway.task_manager(task_manager.info.id)
            assert view.kept == ()
            assert not (await cluster.view(JOB)).driver_has_ended

    in_virtual_time(scenario)


@pytest.mark.parametrize("orderly", [True, False])
def test_task_managers_that_end_in_order_are_no_reason_to_doubt_the_own_contact(orderly: bool) -> None:
    """Most task managers silent at once would mean that this JobManager is cut off: then it restarts nothing."""

    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading():
            await cluster.add("tm-1")
            master = await cluster.run_job()
            for name in ("tm-2", "tm-3", "tm-4"):
                await cluster.add(name)
            for _ in range(20):
                await asyncio.sleep(1.0)
                await master.beat()
            for task_manager in cluster.task_managers[1:]:
                if orderly:
                    task_manager.leaving = True
                    await task_manager.beat()
                cluster.silent.add(task_manager.info.instance)
            await asyncio.sleep(SILENT)  # and so does the driver, alone
            restarted = (await cluster.view(JOB)).status is not JobStatus.RUNNING
            assert restarted == orderly

    in_virtual_time(scenario)


SILENT = 13.0  # seconds; more than a driver's heartbeat timeout


@pytest.mark.req("BLK-18")
def test_a_driver_that_may_stay_on_an_evacuated_node_is_not_counted_as_moving() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            task_manager = await cluster.add("tm-1")
            master = await cluster.run_job()
            await cluster.add("tm-2")
            entry = BlockedNode(
                id="tm-1",
                action=BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS,
                start_ms=0,
                causes=("power",),
                drivers=EvacuatedDrivers.WAIT,
            )
            await service.gateway.block(entry, merge=False)
            await asyncio.sleep(2.0)
            await master.beat()
            view = await service.gateway.task_manager(task_manager.info.id)
            assert view.evacuation is not None
            assert (view.evacuation.drivers_moving, view.evacuation.drivers_staying) == (0, 1)
            other = await service.gateway.task_manager(cluster.task_managers[1].info.id)
            assert (other.evacuated, other.evacuation) == (False, None)

    in_virtual_time(scenario)


def test_a_jobmanager_that_was_resumed_before_its_term_decides_from_the_begin() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        cluster.service.pause()
        cluster.service.resume()
        async with cluster.leading() as service:
            assert service.problem == ""
            await cluster.add()
            await cluster.run_job()

    in_virtual_time(scenario)


def test_a_task_manager_with_everything_taken_or_away_has_nothing_free() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            task_manager = await cluster.add()
            assert (await cluster.view((await cluster.run_job(count=4)).job_id)).leaving is False
            await asyncio.sleep(2.0)
            view = await service.gateway.task_manager(task_manager.info.id)
            assert (view.free_slots, view.away) == (0, False)
            cluster.silent.add(task_manager.info.instance)
            async with asyncio.timeout(600.0):
                while not view.away:
                    await asyncio.sleep(1.0)
                    view = await service.gateway.task_manager(task_manager.info.id)
            assert (view.free_slots, view.free_driver_places) == (0, 0)

    in_virtual_time(scenario)


def test_a_job_without_a_running_driver_counts_as_leaving() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            await service.gateway.submit(graph(1))
            assert (await cluster.view(JOB)).leaving is True

    in_virtual_time(scenario)


def test_a_cancelled_job_takes_no_place_even_if_its_result_cannot_be_stored_yet() -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading() as service:
            await service.gateway.submit(graph(1))
            store.before["record_result"] = [RetryLater("no disk")] * 100
            await service.gateway.cancel(JOB)
            await service.gateway.submit(graph(2))
            task_manager = await cluster.add(driver_places=1)
            await cluster.holds(lambda: cluster.host(graph(2).job_id, 1), seconds=20.0)
            assert [order.graph.job_id for order in task_manager.started] == [graph(2).job_id]

    in_virtual_time(scenario)


def test_a_standby_driver_that_becomes_ready_later_attracts_drivers() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            await cluster.add("tm-1")
            warm = await cluster.add("tm-2")
            warm.standbys = StandbyReport(drivers=0, drivers_kept=1, executors=0, executors_kept=0)
            await warm.beat()
            warm.standbys = StandbyReport(drivers=1, drivers_kept=1, executors=0, executors_kept=0)
            await warm.beat()
            await service.gateway.submit(graph(1))
            await cluster.holds(lambda: cluster.host(JOB, 1))
            assert cluster.host(JOB, 1) == [warm]

    in_virtual_time(scenario)


def test_the_leader_keeps_a_history_of_what_task_managers_report() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            task_manager = await cluster.add()
            master = await cluster.run_job(count=2)
            for _ in range(60):
                await asyncio.sleep(1.0)
                await master.beat(2)
            usage = await service.gateway.usage(task_manager.info.id, after_ms=0)
            newest = usage.samples[-1]
            assert (newest.slots_taken, newest.slots) == (2, task_manager.info.slots)
            assert usage.step_ms == SHORTEST_STEP_MS
            assert {one.time_ms % usage.step_ms for one in usage.samples} == {0}
            assert 5 <= len(usage.samples) <= 8
            assert usage.since_ms > service.gateway.started_ms() - 1
            newer = await service.gateway.usage(task_manager.info.id, after_ms=newest.time_ms - 1)
            assert newer.samples == (newest,)
            with pytest.raises(Absent):
                await service.gateway.usage(TaskManagerId("tm-unknown"), after_ms=0)

    in_virtual_time(scenario)
