"""A cancellation that arrives while the record of the next phase is being written, or a second time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from emberkeep.base.errors import Conflict
from emberkeep.base.request_context import called_by
from emberkeep.jobmanager.service import JobManagerService
from emberkeep.jobmanager.views.upgrades import UpgradeView
from emberkeep.jobs.model import AttemptOutcome, JobStatus
from emberkeep.jobs.upgrades.model import Upgrade, UpgradePhase
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.jobs.upgrades.test_upgrades import BACK, FAILS, NEW, OLD, ends, in_phase, stops, wish
from tests.unit.jobmanager.memory_store import FailingStore

Happens = Callable[[SmallCluster], Awaitable[None]]


class HeldStore(FailingStore):
    """Holds the writes of upgrades in these phases. ``held``: one is under way. ``go_on``: ends the hold."""

    def __init__(self, *phases: UpgradePhase) -> None:
        super().__init__()
        self._phases = phases
        self.held, self.go_on = asyncio.Event(), asyncio.Event()

    async def record_upgrade(self, upgrade: Upgrade) -> None:
        if upgrade.phase in self._phases and not self.go_on.is_set():
            self.held.set()
            await self.go_on.wait()
        await super().record_upgrade(upgrade)


async def cancel(service: JobManagerService) -> UpgradeView:
    with called_by("ana"):
        return await service.gateway.cancel_upgrade(OLD)


async def begun(cluster: SmallCluster, service: JobManagerService) -> None:
    """Begin an upgrade, and let the old job end with its savepoint."""
    await cluster.add()
    master = await cluster.run_job()
    await service.gateway.upgrade(OLD, wish())
    await stops(cluster, master)


async def held_cancel(cluster: SmallCluster, service: JobManagerService, store: HeldStore) -> asyncio.Task[UpgradeView]:
    """Cancel while the write is held, and let it go on only then."""
    async with asyncio.timeout(600):
        await store.held.wait()
    asked = asyncio.create_task(cancel(service))
    await asyncio.sleep(1)
    assert not asked.done()
    store.go_on.set()
    return asked


async def new_job_is_not_good(cluster: SmallCluster) -> None:
    new = await cluster.next_jobmaster(NEW, 1)
    for _ in range(70):  # longer than the watch
        await new.beat()
        await asyncio.sleep(1)


async def new_job_fails(cluster: SmallCluster) -> None:
    await ends(cluster, await cluster.next_jobmaster(NEW, 1), FAILS)


async def new_job_finishes(cluster: SmallCluster) -> None:
    await ends(cluster, await cluster.next_jobmaster(NEW, 1), AttemptOutcome(exit_code=0))


@pytest.mark.parametrize(
    ("phase", "happens"),
    [
        (UpgradePhase.CANCELLING, new_job_is_not_good),
        (UpgradePhase.RETURNING, new_job_fails),
        (UpgradePhase.DONE, new_job_finishes),
    ],
)
def test_a_phase_that_is_being_recorded_is_told_to_be_ahead_of_the_cancellation(
    phase: UpgradePhase, happens: Happens
) -> None:
    async def scenario() -> None:
        store = HeldStore(phase)
        cluster = SmallCluster(store)
        async with cluster.leading() as service:
            await begun(cluster, service)
            await happens(cluster)
            asked = await held_cancel(cluster, service, store)
            with pytest.raises(Conflict, match=f"it was too late: the upgrade is {phase.value}"):
                async with asyncio.timeout(5):
                    await asked
            assert not (await service.gateway.upgrade_of(OLD)).upgrade.canceled_by

    in_virtual_time(scenario)


def test_a_cancellation_during_the_write_of_a_phase_that_may_be_cancelled_is_recorded_next() -> None:
    async def scenario() -> None:
        store = HeldStore(UpgradePhase.STARTING)
        cluster = SmallCluster(store)
        async with cluster.leading() as service:
            await begun(cluster, service)
            asked = await held_cancel(cluster, service, store)
            async with asyncio.timeout(5):
                assert (await asked).upgrade.canceled_by == "ana"
            assert "ana has cancelled the upgrade" in await in_phase(service, UpgradePhase.RETURNED)

    in_virtual_time(scenario)


def test_a_cancellation_whose_reply_was_lost_succeeds_again_under_the_next_leader_until_the_end_and_after_it() -> None:
    async def scenario() -> None:
        store = HeldStore(UpgradePhase.RETURNING)
        cluster = SmallCluster(store)
        async with cluster.leading() as service:
            await begun(cluster, service)
            await in_phase(service, UpgradePhase.WATCHING)
            await cluster.next_jobmaster(NEW, 1)
            assert (await cancel(service)).upgrade.canceled_by == "ana"
            await in_phase(service, UpgradePhase.CANCELLING)
        async with cluster.leading() as service:
            again = (await cancel(service)).upgrade
            assert (again.phase, again.canceled_by) == (UpgradePhase.CANCELLING, "ana")
            cluster.task_managers[0].exits(NEW, 1, AttemptOutcome(exit_code=130))
            await cluster.reaches(NEW, JobStatus.CANCELED)
            async with asyncio.timeout(600):
                await store.held.wait()
            async with asyncio.timeout(5):
                assert (await cancel(service)).upgrade.canceled_by == "ana", "it does not wait for the write"
            store.go_on.set()
            await in_phase(service, UpgradePhase.RETURNING, UpgradePhase.RETURNED)
            assert (await cancel(service)).upgrade.canceled_by == "ana"
            await in_phase(service, UpgradePhase.RETURNED)
            ended = await cancel(service)
            assert (
                ended.text
                == f"the old code was started again, as job {BACK[:8]}, because ana has cancelled the upgrade"
            )

    in_virtual_time(scenario)
