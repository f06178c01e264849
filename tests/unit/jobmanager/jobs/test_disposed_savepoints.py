"""A savepoint that somebody deletes, and a job that is being submitted from it."""

from __future__ import annotations

import asyncio

import pytest

from emberkeep.base.errors import Conflict, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobGraph
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import graph
from tests.unit.jobmanager.memory_store import FailingStore

pytestmark = [pytest.mark.req("SAFE-7")]


class SlowStore(FailingStore):
    """Writes a job once it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_write = asyncio.Event()

    async def create(self, graph: JobGraph) -> JobId:
        await self.may_write.wait()
        return await super().create(graph)


def test_a_savepoint_from_which_a_job_is_being_submitted_is_not_deleted() -> None:
    """The list of jobs does not have that job yet."""

    async def scenario() -> None:
        store = SlowStore()
        cluster = SmallCluster(store)
        async with cluster.leading() as service:
            submitting = asyncio.create_task(service.gateway.submit(graph(1, savepoint="/s/1")))
            await asyncio.sleep(1.0)
            assert await service.gateway.jobs() == []
            with pytest.raises(Conflict, match="is being submitted"):
                async with service.gateway.disposing("file:///s/1"):
                    raise AssertionError("it would be deleted now")
            async with service.gateway.disposing("/s/2"):
                pass
            store.may_write.set()
            assert (await submitting).created

    in_virtual_time(scenario)


def test_a_savepoint_is_free_again_although_the_leader_was_overloaded_when_its_deletion_ended() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            dispatcher = service._seat.leader.dispatcher
            async with service.gateway.disposing("/s/1"):
                with pytest.raises(RetryLater, match="is being deleted"):
                    await service.gateway.submit(graph(1, savepoint="/s/1"))
                while not dispatcher._inbox.full():
                    dispatcher.tell(lambda: None)
            await asyncio.sleep(1.0)
            assert (await service.gateway.submit(graph(1, savepoint="/s/1"))).created

    in_virtual_time(scenario)
