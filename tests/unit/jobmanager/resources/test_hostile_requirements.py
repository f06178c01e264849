"""What a driver says that it needs may be anything: it harms neither the JobManager nor other jobs."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from emberkeep.base.errors import InvalidInput
from emberkeep.slots.custom.amounts import ResourceAmount
from emberkeep.slots.model import REQUIREMENTS, SlotRequirement
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import RUNTIME, SLOT
from tests.unit.jobmanager.memory_store import FailingStore

pytestmark = pytest.mark.req("SEC-19")


def gpus(*numbers: int) -> dict[str, Any]:
    return {"custom": tuple(ResourceAmount(name="gpu", amount=number) for number in numbers)}


def requirement(count: int = 100, **changes: Any) -> SlotRequirement:
    return SlotRequirement(count=count, profile=msgspec.structs.replace(SLOT, **changes), runtime=RUNTIME)


@pytest.mark.parametrize(
    "requirements",
    [
        (requirement(**gpus(0)),),
        (requirement(**gpus(-1)),),
        (requirement(**gpus(1, 1)),),
        (requirement(cores=-1000),),
        (requirement(memory_mb=-1_000_000),),
        (requirement(-1),),
        (requirement(1),) * (REQUIREMENTS + 1),
    ],
    ids=["no gpu", "less than no gpu", "gpu twice", "cores", "memory", "count", "sizes"],
)
def test_impossible_requirements_are_refused_and_the_leader_goes_on(requirements: tuple[SlotRequirement, ...]) -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            task_manager = await cluster.add()
            master = await cluster.run_job(1)
            with pytest.raises(InvalidInput):
                await master.beat(requirements=requirements)
            await asyncio.sleep(10.0)
            assert not task_manager.allocations
            view = await service.gateway.task_manager(task_manager.info.id)
            assert view.free_resources.cores == task_manager.info.total.cores
            await (await cluster.run_job(2)).beat(1)
            await cluster.holds(lambda: len(task_manager.allocations) == 1)

    in_virtual_time(scenario)
