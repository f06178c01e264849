"""What people are told whose calls meet the end of a leader: always something, and never that it is their mistake."""

from __future__ import annotations

import asyncio

import pytest

from emberkeep.base.errors import Conflict, RetryLater, UnknownOutcome
from emberkeep.base.ids import JobId
from emberkeep.jobs.model import AttemptOutcome, JobGraph, JobStatus
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import graph
from tests.unit.jobmanager.memory_store import FailingStore

pytestmark = [pytest.mark.req("HA-1"), pytest.mark.req("HA-6")]

JOB = graph(1).job_id


class SilentStore(FailingStore):
    """While it is ``silent``, submissions and cancellations are under way until they are ``heard``."""

    def __init__(self) -> None:
        super().__init__()
        self.silent = False
        self.heard = asyncio.Event()

    async def create(self, graph: JobGraph) -> JobId:
        await self._answer()
        return await super().create(graph)

    async def record_cancel(self, job_id: JobId) -> None:
        await self._answer()
        await super().record_cancel(job_id)

    async def _answer(self) -> None:
        if self.silent:
            await self.heard.wait()


def test_calls_that_wait_for_the_store_are_answered_when_the_leader_stops() -> None:
    async def scenario() -> None:
        store = SilentStore()
        cluster = SmallCluster(store)
        async with cluster.leading() as service:
            await service.gateway.submit(graph(1))
            store.silent = True
            calls = [
                asyncio.create_task(service.gateway.submit(graph(2))),
                asyncio.create_task(service.gateway.cancel(JOB)),
            ]
            await asyncio.sleep(1.0)
            assert not any(call.done() for call in calls)
        for call in calls:
            with pytest.raises(UnknownOutcome, match="stopped leading"):
                await call

    in_virtual_time(scenario)


def test_a_deposed_leader_does_not_call_a_submission_a_conflict() -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading() as service:
            store.disk.epoch += 1
            with pytest.raises(RetryLater, match="no longer the leader"):
                await service.gateway.submit(graph(1))

    in_virtual_time(scenario)


def test_a_deposed_leader_does_not_call_the_stop_of_a_task_manager_a_conflict() -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        async with cluster.leading() as service:
            task_manager = await cluster.add()
            store.disk.epoch += 1
            with pytest.raises(RetryLater, match="no longer the leader"):
                await service.gateway.stop_task_manager(task_manager.info.id, drain=0.0)
            assert task_manager.ending == []

    in_virtual_time(scenario)


def test_a_deposed_leader_does_not_call_a_cancellation_a_conflict_and_ends() -> None:
    async def scenario() -> None:
        store = FailingStore()
        cluster = SmallCluster(store)
        leading = cluster.leading()
        service = await leading.__aenter__()
        await service.gateway.submit(graph(1))
        store.disk.epoch += 1
        with pytest.raises(RetryLater, match="no longer the leader"):
            await service.gateway.cancel(JOB)
        await asyncio.sleep(1.0)
        with pytest.raises(Conflict, match="epoch"):
            await leading.__aexit__(None, None, None)

    in_virtual_time(scenario)


def test_a_job_that_ends_while_its_cancellation_is_written_is_not_harmed() -> None:
    async def scenario() -> None:
        store = SilentStore()
        cluster = SmallCluster(store)
        async with cluster.leading() as service:
            await cluster.add()
            master = await cluster.run_job()
            store.silent = True
            canceling = asyncio.create_task(service.gateway.cancel(JOB))
            await asyncio.sleep(1.0)
            await master.ends(AttemptOutcome(exit_code=0))
            await cluster.reaches(JOB, JobStatus.FINISHED)
            store.heard.set()
            with pytest.raises(Conflict, match="FINISHED"):
                await canceling

    in_virtual_time(scenario)
