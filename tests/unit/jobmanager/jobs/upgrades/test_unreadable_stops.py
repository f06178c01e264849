"""Upgrades whose job was stopped, and whose records the next leader cannot read."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from emberkeep.jobmanager.service import JobManagerService
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import AttemptOutcome
from emberkeep.jobs.ports import StoredJob
from emberkeep.jobs.upgrades.machine import UNREADABLE
from emberkeep.jobs.upgrades.model import UpgradePhase
from emberkeep.lifecycle.model import ProcedurePhase
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.jobs.test_procedures import progress, told
from tests.unit.jobmanager.jobs.test_recovered_jobs import PartlyAwayStore
from tests.unit.jobmanager.jobs.upgrades.test_upgrades import NEW, OLD, UPGRADE, in_phase, wish

pytestmark = pytest.mark.req("SAFE-1")


class UnreadableStore(PartlyAwayStore):
    """The pointers of jobs in ``away`` cannot be read either; ``is_damaged``: nor those of any job, ever again."""

    def __init__(self) -> None:
        super().__init__()
        self.is_damaged = False

    def _seen(self, stored: StoredJob) -> StoredJob:
        if self.is_damaged or stored.job_id in self.away:
            stored = msgspec.structs.replace(stored, pointers=JobPointers())
        return super()._seen(stored)


async def stopped(cluster: SmallCluster, service: JobManagerService) -> None:
    """Begin the upgrade, and let the driver report the savepoint. Its end is not reported before the leader is lost."""
    await cluster.add()
    master = await cluster.run_job()
    await service.gateway.upgrade(OLD, wish())
    async with asyncio.timeout(60):
        while (asked := (await master.beat()).procedure) is None:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.1)
    await told(master, progress(asked, ProcedurePhase.COMPLETED))


async def driver_ends(cluster: SmallCluster) -> None:
    for host in cluster.host(OLD, 1):
        host.exits(OLD, 1, AttemptOutcome(exit_code=0))
        await host.beat()


def test_the_upgrade_waits_until_the_records_can_be_read_and_goes_on() -> None:
    async def scenario() -> None:
        store = UnreadableStore()
        cluster = SmallCluster(store)
        async with cluster.leading() as service:
            await stopped(cluster, service)
        store.away = {OLD}
        async with cluster.leading() as service:
            await asyncio.sleep(60.0)
            assert await in_phase(service, UpgradePhase.STOPPING)
            store.away.clear()
            await driver_ends(cluster)
            await in_phase(service, UpgradePhase.WATCHING)
            assert (await cluster.view(NEW)).started_from == f"/savepoints/{UPGRADE[-4:]}"

    in_virtual_time(scenario)


def test_a_record_that_is_damaged_for_good_is_not_taken_for_a_stop_that_has_failed() -> None:
    async def scenario() -> None:
        store = UnreadableStore()
        cluster = SmallCluster(store)
        async with cluster.leading() as service:
            await stopped(cluster, service)
        store.is_damaged = True
        async with cluster.leading() as service:
            await asyncio.sleep(60.0)
            assert await in_phase(service, UpgradePhase.STOPPING)
            await driver_ends(cluster)
            assert UNREADABLE in await in_phase(service, UpgradePhase.FAILED, UpgradePhase.UNCHANGED)

    in_virtual_time(scenario)
