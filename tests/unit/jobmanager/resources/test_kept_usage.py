"""The usage of nodes over a change of the leader."""

from __future__ import annotations

import asyncio

from emberkeep.base.errors import Unavailable
from emberkeep.usage.histories import KeptHistories
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.memory_store import FailingStore


class MemoryUsage:
    """What leaders have stored, by epoch. It can be made unavailable."""

    def __init__(self) -> None:
        self.written: dict[int, KeptHistories] = {}
        self.is_away = False

    async def earlier(self, lineage: str, epoch: int) -> KeptHistories | None:
        self._check()
        return self.written.get(max((each for each in self.written if each < epoch), default=0))

    async def keep(self, lineage: str, epoch: int, histories: KeptHistories) -> None:
        self._check()
        self.written[epoch] = histories

    def _check(self) -> None:
        if self.is_away:
            raise Unavailable("the storage is away")


def test_the_next_leader_continues_the_histories() -> None:
    async def scenario() -> None:
        usage = MemoryUsage()
        cluster = SmallCluster(FailingStore(), usage=usage)
        async with cluster.leading() as service:
            task_manager = await cluster.add()
            await asyncio.sleep(135)
            before = await service.gateway.usage(task_manager.info.id, after_ms=0)
        async with cluster.leading() as service:
            await asyncio.sleep(30)
            after = await service.gateway.usage(task_manager.info.id, after_ms=0)
        assert after.since_ms == before.since_ms
        stored = before.samples[:12]  # until the second write, after 70 s, or the third
        assert after.samples[:6] == stored[:6]
        assert len(after.samples) > len(before.samples) - 7
        assert len(usage.written) == 2

    in_virtual_time(scenario)


def test_nothing_is_overwritten_before_it_was_read() -> None:
    async def scenario() -> None:
        usage = MemoryUsage()
        cluster = SmallCluster(FailingStore(), usage=usage)
        async with cluster.leading() as service:
            task_manager = await cluster.add()
            await asyncio.sleep(100)
            before = await service.gateway.usage(task_manager.info.id, after_ms=0)
        usage.is_away = True
        async with cluster.leading() as service:
            await asyncio.sleep(30)
            assert (await service.gateway.usage(task_manager.info.id, after_ms=0)).since_ms > before.since_ms
            usage.is_away = False
            await asyncio.sleep(90)
            after = await service.gateway.usage(task_manager.info.id, after_ms=0)
        assert after.since_ms == before.since_ms
        assert list(usage.written) == [1, 2]

    in_virtual_time(scenario)


def test_the_slots_of_the_cluster_are_counted_as_the_pages_count_them() -> None:
    async def scenario() -> None:
        usage = MemoryUsage()
        cluster = SmallCluster(FailingStore(), usage=usage)
        async with cluster.leading() as service:
            await asyncio.sleep(25)
            await cluster.add()
            await cluster.add()
            await asyncio.sleep(100)
            before = await service.gateway.usage(None, after_ms=0)
            views = await service.gateway.task_managers()
        slots = sum(view.info.slots for view in views)
        assert before.samples[0].slots == 0, "a cluster without task managers has a history, too"
        assert (before.samples[-1].slots, before.samples[-1].slots_taken) == (slots, 0)
        async with cluster.leading() as service:
            await asyncio.sleep(30)
            after = await service.gateway.usage(None, after_ms=0)
        assert after.since_ms == before.since_ms
        assert after.samples[:4] == before.samples[:4]

    in_virtual_time(scenario)


def test_a_new_leader_draws_no_loss_of_slots_while_task_managers_register() -> None:
    async def scenario() -> None:
        usage = MemoryUsage()
        cluster = SmallCluster(FailingStore(), usage=usage)
        async with cluster.leading() as service:
            first, second = await cluster.add("tm-1"), await cluster.add("tm-2")
            await asyncio.sleep(75)
            before = (await service.gateway.usage(None, after_ms=0)).samples[-1]
        cluster.task_managers.clear()
        async with cluster.leading() as service:
            await asyncio.sleep(25)
            await cluster.add("tm-1")
            await asyncio.sleep(25)
            waiting = await service.gateway.usage(None, after_ms=before.time_ms)
            await asyncio.sleep(25)
            after = await service.gateway.usage(None, after_ms=before.time_ms)
        assert before.slots == first.info.slots + second.info.slots
        assert {sample.slots for sample in waiting.samples} <= {before.slots}
        assert after.samples[-1].slots == first.info.slots, "the other one does not come back"

    in_virtual_time(scenario)
