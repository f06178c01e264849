"""Since when a leader has problems, and since when jobs wait that run."""

from __future__ import annotations

import asyncio

from emberkeep.jobs.model import JobStatus
from tests.support.usable_storage import UsableStorage
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.memory_store import FailingStore


def test_it_is_known_since_when_no_task_manager_is_registered() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            await asyncio.sleep(5)
            assert service.empty_since_ms == service.gateway.started_ms()
            task_manager = await cluster.add()
            assert service.empty_since_ms == 0
            cluster.silent.add(task_manager.info.instance)
            await cluster.holds(lambda: service.empty_since_ms)
            assert service.empty_since_ms > service.gateway.started_ms() + 5_000

    in_virtual_time(scenario)


def test_it_is_known_since_when_a_job_that_runs_waits() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading():
            task_manager = await cluster.add()
            slots = task_manager.info.slots
            master = await cluster.run_job(count=slots)
            await cluster.reaches(master.job_id, JobStatus.RUNNING)
            await master.beat(slots)
            assert (await cluster.view(master.job_id)).waiting_since_ms == 0
            await master.beat(slots + 1)
            await asyncio.sleep(1)  # until slots are matched
            await master.beat(slots + 1)
            began = (await cluster.view(master.job_id)).waiting_since_ms
            assert began
            await asyncio.sleep(10)
            await master.beat(slots + 1)
            view = await cluster.view(master.job_id)
            assert view.waiting
            assert view.waiting_since_ms == began
            await master.beat(slots)
            assert (await cluster.view(master.job_id)).waiting_since_ms == began
            await asyncio.sleep(10)
            await master.beat(slots)
            assert (await cluster.view(master.job_id)).waiting_since_ms == 0

    in_virtual_time(scenario)


def test_it_is_known_since_when_the_storage_cannot_be_read() -> None:
    async def scenario() -> None:
        storage = UsableStorage()
        cluster = SmallCluster(FailingStore(), storage=storage)
        async with cluster.leading() as service:
            await service.gateway.jobs()
            assert (service.problem, service.problem_since_ms) == ("", 0)
            storage.problem, storage.problem_since_ms = "the shared storage cannot be read here now", 42
            assert service.problem_since_ms == 42

    in_virtual_time(scenario)
