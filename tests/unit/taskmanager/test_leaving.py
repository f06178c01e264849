"""A real TaskManager that shuts down, seen by a real JobManager."""

import asyncio
import contextlib

from emberkeep.base.ids import InstanceId, TaskManagerId
from emberkeep.jobs.model import JobStatus
from emberkeep.slots.model import ResourceProfile, RuntimeVersions, TaskManagerInfo
from emberkeep.taskmanager.ports import TaskManagerPorts
from emberkeep.taskmanager.service import TaskManagerService
from tests.support.agent_store import MemoryAgentStore
from tests.support.fake_launcher import FakeLauncher
from tests.support.simulator.virtual_loop import VirtualClock, seeded_system
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import graph
from tests.unit.jobmanager.memory_store import FailingStore

JOB = graph(1).job_id
INFO = TaskManagerInfo(
    id=TaskManagerId("tm-1"),
    instance=InstanceId("life-1"),
    address="tm:1",
    host="127.0.0.1",
    node_id="node",
    pid=1,
    slots=2,
    driver_places=1,
    total=ResourceProfile(cores=2, memory_mb=2000),
    runtime=RuntimeVersions(python="3.11", spark="4.3.0"),
    java_major=17,
    started_ms=0,
)


def test_a_task_manager_that_has_shut_down_is_gone_at_once_and_does_not_come_back() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as job_manager:
            cluster.network.attach("jm:1", job_manager)
            system = seeded_system(VirtualClock(cluster.loop), 1, "tm")
            ports = TaskManagerPorts(rpc=cluster.network, launcher=FakeLauncher(), store=MemoryAgentStore())
            service = TaskManagerService(system, cluster.configuration, INFO, ports, "jm:1")
            cluster.network.attach(INFO.address, service)
            running = asyncio.create_task(service.run())
            await cluster.holds(lambda: service.registered)
            assert [view.info.id for view in await job_manager.gateway.task_managers()] == ["tm-1"]
            await service.shutdown(5.0)
            assert await job_manager.gateway.task_managers() == []
            await asyncio.sleep(60.0)
            assert await job_manager.gateway.task_managers() == []
            assert not running.done()
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    in_virtual_time(scenario)


def test_a_task_manager_whose_node_is_taken_away_says_so_and_ends_when_it_is_empty() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as job_manager:
            cluster.network.attach("jm:1", job_manager)
            system = seeded_system(VirtualClock(cluster.loop), 1, "tm")
            ports = TaskManagerPorts(rpc=cluster.network, launcher=FakeLauncher(), store=MemoryAgentStore())
            service = TaskManagerService(system, cluster.configuration, INFO, ports, "jm:1")
            cluster.network.attach(INFO.address, service)
            running = asyncio.create_task(service.run())
            await cluster.holds(lambda: service.registered)
            await cluster.service.gateway.submit(graph(1))
            await cluster.reaches(JOB, JobStatus.INITIALIZING)
            retired = asyncio.create_task(service.retired())
            service.drain(100.0)
            await asyncio.sleep(20.0)
            (view,) = await job_manager.gateway.task_managers()
            assert view.report.draining
            service.drain(1000.0)  # repeated: it does not prolong the time
            assert not retired.done(), "a driver is there"
            await asyncio.sleep(85.0)
            assert retired.done(), "its time is over"
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    in_virtual_time(scenario)


def test_a_task_manager_that_is_cancelled_while_it_begins_ends_at_whatever_step() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        for steps in range(60):
            system = seeded_system(VirtualClock(cluster.loop), steps, "tm")
            ports = TaskManagerPorts(rpc=cluster.network, launcher=FakeLauncher(), store=MemoryAgentStore())
            service = TaskManagerService(system, cluster.configuration, INFO, ports, "jm:1")
            running = asyncio.create_task(service.run())
            for _ in range(steps):
                await asyncio.sleep(0)
            running.cancel()
            _, late = await asyncio.wait({running}, timeout=60.0)
            assert not late, f"cancelled after {steps} steps"

    in_virtual_time(scenario)
