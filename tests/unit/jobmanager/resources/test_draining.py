"""Task managers whose work goes elsewhere before they end, as task managers and JobMasters see it."""

from __future__ import annotations

import asyncio

import pytest

from emberkeep.base.ids import TaskManagerId
from emberkeep.jobs.model import JobStatus
from emberkeep.lifecycle.model import Procedure
from tests.support.simulator.scripts import STREAM
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import FakeJobMaster, FakeTaskManager, executor_in
from tests.unit.jobmanager.jobs.test_driver_moves import (
    FAILURE,
    JOB,
    MOVED,
    ONCE,
    TOLD_TO_END,
    asked,
    asked_in_vain,
    left_without_state,
    started_elsewhere,
)
from tests.unit.jobmanager.memory_store import FailingStore

TM_1 = TaskManagerId("tm-1")


async def draining_job(cluster: SmallCluster) -> tuple[FakeTaskManager, FakeJobMaster]:
    """The job runs on tm-1, which is told to end, its work first; there is no other."""
    home = await cluster.add("tm-1")
    master = await cluster.run_job()
    await cluster.service.gateway.stop_task_manager(TM_1, drain=3600.0)
    return home, master


async def is_told(master: FakeJobMaster) -> None:
    async with asyncio.timeout(60):
        while (await master.beat(queries=(STREAM,))).draining != (TM_1,):  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.5)


@pytest.mark.req("BLK-18", "LOC-6")
def test_a_streaming_driver_moves_as_soon_as_there_is_room_also_by_the_next_leader() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore(), ONCE)
        async with cluster.leading() as service:
            home, master = await draining_job(cluster)
            await is_told(master)
            for _ in range(200):
                assert (await master.beat(queries=(STREAM,))).procedure is None, "it would only wait elsewhere"
                await asyncio.sleep(1.0)
            assert not home.stopped
            (view,) = await service.gateway.task_managers()
            assert view.evacuation is not None, "how far it is can be seen"
        async with cluster.leading() as service:
            master.service = service
            await cluster.holds(lambda: len(cluster.host(JOB, 1)) == 1)
            await master.register(queries=(STREAM,))
            await is_told(master)
            await cluster.add("tm-2")
            reply = await asked(master, queries=(STREAM,))
            assert reply.procedure is not None
            assert reply.procedure.procedure is Procedure.MOVE
            await master.ends(MOVED)
            await started_elsewhere(cluster, home, MOVED)

    in_virtual_time(scenario)


@pytest.mark.req("SAFE-19", "LOC-6")
def test_a_streaming_driver_that_cannot_keep_its_state_stays_and_says_why_until_the_time_is_over() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore(), ONCE)
        async with cluster.leading():
            home, master = await draining_job(cluster)
            await cluster.add("tm-2")
            triggers = await asked_in_vain(cluster, master, seconds=1_000.0)
            assert not home.stopped, "the drain has a time of its own"
            assert len(triggers) > 20, "it is asked again and again"
            view = await cluster.view(JOB)
            assert view.waiting == f"its driver to leave its node, which was not possible so far: {FAILURE}"
            assert not view.exceptions
            home.exits(JOB, 1, TOLD_TO_END)  # the time is over
            await cluster.next_jobmaster(JOB, 2)
            view = await cluster.reaches(JOB, JobStatus.RUNNING)
            (entry,) = view.exceptions
            assert entry.message == left_without_state("node tm-1")
            assert not view.waiting

    in_virtual_time(scenario)


@pytest.mark.req("BLK-18", "LOC-6")
def test_a_driver_without_a_stream_stays_until_its_task_manager_ends_it_which_is_no_failure() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore(), ONCE)
        async with cluster.leading():
            home, master = await draining_job(cluster)
            await cluster.add("tm-2")
            for _ in range(200):
                assert (await master.beat()).procedure is None
                await asyncio.sleep(1.0)
            assert not home.stopped
            await master.ends(TOLD_TO_END)
            await started_elsewhere(cluster, home, TOLD_TO_END)

    in_virtual_time(scenario)


@pytest.mark.req("LOC-6")
def test_its_slots_are_wanted_elsewhere_at_once_and_nothing_new_comes() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore(), ONCE)
        async with cluster.leading() as service:
            home = await cluster.add("tm-1", driver_places=1)
            other = await cluster.add("tm-2", driver_places=0)
            master = await cluster.run_job(1, executors=1)
            await master.beat(1)
            await cluster.holds(lambda: home.allocations or other.allocations)
            (holder,) = (one for one in (home, other) if one.allocations)
            (spare,) = (one for one in (home, other) if one is not holder)
            (allocation,) = holder.allocations.values()
            await master.beat(1, executors=(executor_in(allocation, holder.info),))
            await service.gateway.stop_task_manager(holder.info.id, drain=3600.0)
            await cluster.holds(lambda: holder.leaving)
            await asyncio.sleep(2.0)
            assert (await master.beat(1, executors=())).draining == (holder.info.id,)
            await cluster.holds(lambda: spare.allocations)
            assert len(holder.allocations) == 1

    in_virtual_time(scenario)
