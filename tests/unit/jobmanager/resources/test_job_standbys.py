"""What a JobManager tells task managers about reserved standbys, and what it does with their reports."""

from __future__ import annotations

import asyncio

import pytest

from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import JobId
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.protocol.limits import RESERVED_GRAPHS
from emberkeep.protocol.messages.task_manager_reports import StandbyReport
from emberkeep.protocol.messages.task_managers import ReservedStandby
from emberkeep.slots.reserved.choices import StandbyView
from tests.support.simulator.scripts import STREAM
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import FakeJobMaster, FakeTaskManager, graph
from tests.unit.jobmanager.memory_store import FailingStore

HOT = {"execution.standby": "hot"}
JOB = graph(1).job_id
CHECKPOINTS = (STREAM.checkpoint_location,)
KNOWN = ReservedStandby(job_id=JOB, checkpoints=CHECKPOINTS)
NONE_READY = StandbyReport(drivers=0, drivers_kept=1, executors=0, executors_kept=0)
LOST = AttemptOutcome(exit_code=137, kind=FailureKind.LOST, message="killed")


async def keeper(cluster: SmallCluster, name: str) -> FakeTaskManager:
    """A task manager that keeps standby drivers and reports when the test says so."""
    task_manager = await cluster.add(name)
    task_manager.standbys = NONE_READY
    cluster.silent.add(task_manager.info.instance)
    await task_manager.beat()
    return task_manager


async def streaming(cluster: SmallCluster, home: FakeTaskManager, number: int = 1) -> FakeJobMaster:
    """A job on ``home`` that wants a reserved standby and runs a streaming query."""
    wanted = graph(number, options=HOT)
    await cluster.service.gateway.submit(wanted)
    await cluster.holds(lambda: (wanted.job_id, 1) in home.drivers)
    await home.beat()
    master = FakeJobMaster(cluster.service, wanted.job_id, 1, home.info.id)
    await master.register(queries=(STREAM,))
    await asyncio.sleep(1.0)
    return master


async def told(task_manager: FakeTaskManager) -> tuple[ReservedStandby, ...]:
    return (await task_manager.beat()).reserved_standbys


def test_a_stream_has_a_reserved_standby_on_another_node_and_its_next_driver_goes_there() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading():
            first = await keeper(cluster, "tm-1")
            await streaming(cluster, first)
            second = await keeper(cluster, "tm-2")
            await asyncio.sleep(1.0)
            assert await told(first) == ()
            assert await told(second) == (
                ReservedStandby(job_id=JOB, graph=graph(1, options=HOT), checkpoints=CHECKPOINTS),
            )
            second.reserved[JOB] = "it is still warming up"
            assert await told(second) == (KNOWN,), "the task manager has the graph"
            assert (await cluster.view(JOB)).standby == StandbyView(second.info.id, "it is still warming up")
            second.reserved[JOB] = ""
            await second.beat()
            assert (await cluster.view(JOB)).standby == StandbyView(second.info.id, "")
            first.exits(JOB, 1, LOST)
            await first.beat()
            await cluster.holds(lambda: (JOB, 2) in second.drivers)
            assert await told(second) == (KNOWN,), "the driver may be about to take it"

    in_virtual_time(scenario)


def test_it_is_asked_for_until_the_job_ends() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            first = await keeper(cluster, "tm-1")
            await streaming(cluster, first)
            second = await keeper(cluster, "tm-2")
            await asyncio.sleep(1.0)
            for _ in range(3):
                assert [each.job_id for each in await told(second)] == [JOB]
            await service.gateway.cancel(JOB)
            first.exits(JOB, 1, AttemptOutcome(exit_code=143))
            await first.beat()
            await asyncio.sleep(1.0)
            assert await told(second) == ()

    in_virtual_time(scenario)


@pytest.mark.parametrize("options", [{}, {"execution.standby": "none"}])
def test_a_job_has_none_unless_it_wants_one(options: dict[str, str]) -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading():
            first = await keeper(cluster, "tm-1")
            second = await keeper(cluster, "tm-2")
            await cluster.service.gateway.submit(graph(1, options=options))
            await cluster.holds(lambda: first.drivers or second.drivers)
            await first.beat()
            await second.beat()
            home = cluster.host(JOB, 1)[0]
            await FakeJobMaster(cluster.service, JOB, 1, home.info.id).register(queries=(STREAM,))
            await asyncio.sleep(1.0)
            assert await told(first) == await told(second) == ()
            assert (await cluster.view(JOB)).standby is None

    in_virtual_time(scenario)


def test_a_cluster_can_want_them_for_all_jobs() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore(), HOT)
        async with cluster.leading():
            first = await keeper(cluster, "tm-1")
            await cluster.run_job()
            await first.beat()
            view = (await cluster.view(JOB)).standby
            assert view == StandbyView(None, "the job's current attempt runs no streaming query yet")

    in_virtual_time(scenario)


def test_another_value_is_refused() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            with pytest.raises(InvalidInput, match=r"execution\.standby"):
                await service.gateway.submit(graph(1, options={"execution.standby": "warm"}))

    in_virtual_time(scenario)


def test_the_next_leader_leaves_it_where_it_is() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading():
            first = await keeper(cluster, "tm-1")
            await streaming(cluster, first)
            second, third = await keeper(cluster, "tm-2"), await keeper(cluster, "tm-3")
            await asyncio.sleep(1.0)
            home = second if await told(second) else third
            home.reserved[JOB] = ""
        async with cluster.leading() as service:
            for task_manager in cluster.task_managers:
                task_manager.service = service
                await task_manager.register()
            await asyncio.sleep(1.0)
            assert await told(home) == (ReservedStandby(job_id=JOB),), "no JobMaster has reported its queries yet"
            first.exits(JOB, 1, LOST)
            await first.beat()
            await cluster.holds(lambda: (JOB, 2) in home.drivers)

    in_virtual_time(scenario)


def test_a_reply_carries_few_graphs() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading():
            first = await cluster.add("tm-1", driver_places=100)
            first.standbys = NONE_READY
            jobs = [graph(number).job_id for number in range(1, RESERVED_GRAPHS + 3)]
            for number in range(1, len(jobs) + 1):
                await streaming(cluster, first, number)
            second = await keeper(cluster, "tm-2")
            await asyncio.sleep(1.0)
            known: list[JobId] = []
            for expected in (RESERVED_GRAPHS, 2, 0):
                reply = await told(second)
                assert [each.job_id for each in reply] == jobs
                news = [each.job_id for each in reply if each.graph is not None]
                assert len(news) == expected
                known += news
                second.reserved = dict.fromkeys(known, "")
            assert known == jobs

    in_virtual_time(scenario)
