"""Task managers that are told to end: which life of them is meant."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import InstanceId
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.memory_store import FailingStore


@pytest.mark.req("LOC-6")
def test_only_the_life_that_is_registered_is_told_to_end() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            task_manager = await cluster.add("tm-1")
            cluster.silent.update({"tm-1/1", "tm-1/2"})
            first = task_manager.info
            task_manager.info = msgspec.structs.replace(
                first, instance=InstanceId("tm-1/2"), predecessor=first.instance, started_ms=2
            )
            with pytest.raises(RetryLater, match="restarted"):  # and not registered yet
                await service.gateway.stop_task_manager(first.id, drain=5.0)
            assert not task_manager.ending
            await task_manager.register()
            await service.gateway.stop_task_manager(first.id, drain=5.0)
            (told,) = task_manager.ending
            assert (told.instance, told.drain) == ("tm-1/2", 5.0)

    in_virtual_time(scenario)
