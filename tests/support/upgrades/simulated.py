"""Upgrades in a simulated cluster: the client that asks for one, and what must hold for its three jobs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import msgspec

from emberkeep.base.errors import EmberkeepError, RetryLater, UnknownOutcome
from emberkeep.base.ids import JobId
from emberkeep.jobmanager.views.upgrades import UpgradeWish
from emberkeep.jobs.upgrades.model import Upgrade, UpgradePhase
from emberkeep.taskmanager.ports import DriverKey
from tests.support.simulator.cluster import CLIENT_PAUSE, CLIENT_TIMEOUT, SimCluster, SubmittedJob
from tests.support.simulator.machines import Process
from tests.support.simulator.scripts import Script


@dataclass(eq=False)
class SimUpgrade:
    """One upgrade of a job that runs. ``answer``: "done": it was accepted, so it must end. ``phases``: as recorded."""

    cluster: SimCluster
    job: SubmittedJob
    script: Script
    batches: int = 3
    within: float = 30.0
    answer: str = ""
    phases: list[UpgradePhase] = field(default_factory=list)
    record: Upgrade | None = None

    def __post_init__(self) -> None:
        cluster, numbers = self.cluster, self.cluster.store.rng
        new_id, back_id = (JobId(f"{numbers.getrandbits(128):032x}") for _ in range(2))
        self.upgrade_id = f"{numbers.getrandbits(128):032x}"
        self.new = SubmittedJob(f"{self.job.name} new", self.script, self.job.options, job_id=new_id)
        self.back = SubmittedJob(self.job.name, self.job.script, self.job.options, job_id=back_id)
        cluster.store.on_upgrade.append(self._recorded)
        cluster.store.on_create.append(self._created)
        cluster.machines.on_start.append(self._started)

    @property
    def ids(self) -> tuple[JobId | None, ...]:
        return self.job.job_id, self.new.job_id, self.back.job_id

    def ask(self) -> None:
        """Ask from the client's machine, with retries under one id until there is a reply."""
        self.cluster.client.party.scope.spawn(self._ask(), f"upgrade {self.job.name}")

    async def _ask(self) -> None:
        cluster = self.cluster
        assert self.new.job_id is not None
        assert self.back.job_id is not None
        wish = UpgradeWish(
            upgrade_id=self.upgrade_id,
            new=cluster.graph(self.new, self.new.job_id),
            back=cluster.graph(self.back, self.back.job_id),
            batches=self.batches,
            within_ms=round(self.within * 1000),
            restarts=2,
        )
        data = msgspec.msgpack.encode((self.job.job_id, wish))
        while not self.answer:
            try:
                await cluster.upload(self.new, self.new.job_id)
                await cluster.network.exchange(
                    cluster.client.party, cluster.jm_address, "upgrade", data, CLIENT_TIMEOUT
                )
            except (RetryLater, UnknownOutcome):
                await asyncio.sleep(CLIENT_PAUSE)
            except EmberkeepError as error:
                self.answer = f"{type(error).__name__}: {error}"
            else:
                self.answer = "done"
        cluster.history.add("client", f"upgrade of {self.job.name}: {self.answer}")

    def cancel(self) -> None:
        """Cancel the upgrade from the client's machine."""
        self.cluster.client.party.scope.spawn(self._cancel(), f"cancel the upgrade of {self.job.name}")

    async def _cancel(self) -> None:
        cluster, job_id = self.cluster, self.job.job_id
        assert job_id is not None
        while True:
            try:
                await cluster.network.exchange(
                    cluster.client.party, cluster.jm_address, "cancel-upgrade", job_id.encode(), CLIENT_TIMEOUT
                )
            except (RetryLater, UnknownOutcome):
                await asyncio.sleep(CLIENT_PAUSE)
            except EmberkeepError as error:
                cluster.history.add("client", f"the upgrade is not cancelled: {error}")
                return
            else:
                return

    # --- what must hold -----------------------------------------------------------------------------------------------

    def _recorded(self, upgrade: Upgrade) -> None:
        if upgrade.upgrade_id != self.upgrade_id:
            return
        before, self.record = self.record, upgrade
        violate = self.cluster.history.violate
        if before is not None and before.phase.is_final and upgrade != before:
            violate("upgrade", f"it was {before.phase.value} and is {upgrade.phase.value}")
        if before is not None and before.savepoint and upgrade.savepoint != before.savepoint:
            violate("upgrade", f"its savepoint was {before.savepoint} and is {upgrade.savepoint}")
        if not self.phases or self.phases[-1] is not upgrade.phase:
            self.phases.append(upgrade.phase)
        if upgrade.phase is UpgradePhase.CANCELLING:
            self.new.cancel_wanted = True
        # From now on, a job that follows is watched as if a client had submitted it.
        follower = {UpgradePhase.WATCHING: self.new, UpgradePhase.RETURNED: self.back}.get(upgrade.phase)
        if follower is not None and follower not in self.cluster.jobs:
            follower.submitted = True
            self.cluster.jobs.append(follower)

    def _created(self, job_id: JobId, _key: str) -> None:
        if job_id not in (self.new.job_id, self.back.job_id):
            return
        savepoint = self.cluster.store.graphs[job_id].savepoint
        if self.record is None or not savepoint or savepoint != self.record.savepoint:
            self.cluster.history.violate("upgrade", f"job {job_id[:8]} starts from {savepoint!r}")
        if savepoint.rpartition("/")[2] not in self.cluster.truth.savepoints:
            self.cluster.history.violate("upgrade", f"nobody has written {savepoint}")

    def _started(self, process: Process) -> None:
        key = process.key
        if not isinstance(key, DriverKey) or key.job_id not in self.ids:
            return
        for other in self.cluster.machines.drivers():
            if isinstance(other.key, DriverKey) and other.key.job_id in self.ids and other.key.job_id != key.job_id:
                self.cluster.history.violate("upgrade", f"{process.name} starts while {other.name} lives")
