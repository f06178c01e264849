"""A JobManager among several that loses contact with most task managers lets another one lead."""

from __future__ import annotations

import asyncio

import pytest

from emberkeep.base.configuration.options.job_managers import HEARTBEAT_TIMEOUT
from emberkeep.base.configuration.options.task_managers import ORPHAN_TIMEOUT
from emberkeep.base.errors import Conflict
from emberkeep.jobs.model import JobStatus
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.memory_store import FailingStore

pytestmark = pytest.mark.req("HA-1")

LONGER = 3.0  # seconds: between two heartbeats, two looks


def test_when_all_fall_silent() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore(), steps_aside=True)
        timeout = cluster.configuration[HEARTBEAT_TIMEOUT]

        async def lead() -> None:
            async with cluster.leading():
                members = [await cluster.add("tm-1"), await cluster.add("tm-2")]
                await asyncio.sleep(3 * timeout)
                cluster.silent = {member.info.instance for member in members}
                await asyncio.sleep(timeout - LONGER)
                await cluster.service.gateway.jobs()
                await asyncio.sleep(2 * LONGER)

        with pytest.raises(Conflict, match="stepping aside so that another JobManager can lead"):
            await lead()
        # Nobody was heard by the next one, and nobody is expected: that is no news.
        async with cluster.leading() as service:
            await asyncio.sleep(2 * cluster.configuration[ORPHAN_TIMEOUT])
            assert await service.gateway.jobs() == []

    in_virtual_time(scenario)


def test_not_when_it_is_alone_and_not_for_one_of_two() -> None:
    async def scenario() -> None:
        for steps_aside, silenced in ((False, 2), (True, 1)):
            cluster = SmallCluster(FailingStore(), steps_aside=steps_aside)
            async with cluster.leading() as service:
                members = [await cluster.add("tm-1"), await cluster.add("tm-2")]
                cluster.silent = {member.info.instance for member in members[:silenced]}
                await asyncio.sleep(2 * cluster.configuration[ORPHAN_TIMEOUT])
                assert await service.gateway.jobs() == []

    in_virtual_time(scenario)


def test_when_a_driver_has_to_be_there_and_nobody_is_ever_heard() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore(), steps_aside=True)
        timeout = cluster.configuration[ORPHAN_TIMEOUT]
        async with cluster.leading():
            member = await cluster.add()
            master = await cluster.run_job()
        cluster.silent = {member.info.instance}

        async def lead() -> None:
            async with cluster.leading() as service:
                await asyncio.sleep(timeout - LONGER)
                assert (await service.gateway.job(master.job_id)).status is JobStatus.INITIALIZING
                await asyncio.sleep(2 * LONGER)

        with pytest.raises(Conflict, match="stepping aside so that another JobManager can lead"):
            await lead()

    in_virtual_time(scenario)
