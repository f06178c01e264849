"""The upgrades that the JobManager knows: those that go on, and the newest that have ended."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from emberkeep.base.errors import Absent, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.jobmanager.jobs.job_table import JobTable
from emberkeep.jobmanager.jobs.upgrades.facts import queries_of
from emberkeep.jobmanager.views.upgrades import UpgradeView
from emberkeep.jobs.upgrades.machine import UpgradeMachine
from emberkeep.jobs.upgrades.model import Upgrade
from emberkeep.jobs.upgrades.words import upgrade_text

ENDED_KEPT = 100  # the newest upgrades that have ended


class KnownUpgrades:
    """Upgrades by their id, and by the jobs that are part of them. Part of the Dispatcher's state.

    An upgrade is being recorded, goes on, or has ended.
    """

    def __init__(self, table: JobTable) -> None:
        self._table = table
        self._recording: dict[str, Upgrade] = {}  # asked for, and not recorded yet
        self._open: dict[str, UpgradeMachine] = {}
        self._ended: dict[str, Upgrade] = {}  # oldest first
        self._newest: dict[JobId, str] = {}  # by job: the newest upgrade that it is part of

    # --- changes ------------------------------------------------------------------------------------------------------

    def add_asked(self, upgrade: Upgrade) -> None:
        """Note an upgrade that is being recorded."""
        self._recording[upgrade.upgrade_id] = upgrade

    def drop_asked(self, upgrade: Upgrade) -> None:
        """Note that an upgrade is no longer being recorded."""
        self._recording.pop(upgrade.upgrade_id, None)

    def add(self, upgrade: Upgrade) -> None:
        """Take over an upgrade that is recorded: one that goes on, or one that has ended."""
        if upgrade.phase.is_final:
            self._ended[upgrade.upgrade_id] = upgrade
        else:
            self._open[upgrade.upgrade_id] = UpgradeMachine(upgrade)
        for job_id in upgrade.jobs:
            self._newest[job_id] = upgrade.upgrade_id

    def end(self, upgrade: Upgrade) -> list[str]:
        """Note that an upgrade has ended. Return the ids of old ones that are forgotten for it."""
        del self._open[upgrade.upgrade_id]
        self._ended[upgrade.upgrade_id] = upgrade
        surplus = list(self._ended)[: max(0, len(self._ended) - ENDED_KEPT)]
        for upgrade_id in surplus:
            self._forget(upgrade_id)
        return surplus

    def _forget(self, upgrade_id: str) -> None:
        for job_id in self._ended.pop(upgrade_id).jobs:
            if self._newest.get(job_id) == upgrade_id:
                del self._newest[job_id]

    # --- queries ------------------------------------------------------------------------------------------------------

    def machines(self) -> list[UpgradeMachine]:
        """Return the state machines of the upgrades that go on."""
        return list(self._open.values())

    def machine(self, upgrade_id: str) -> UpgradeMachine | None:
        """Return an upgrade's state machine; None unless the upgrade goes on."""
        return self._open.get(upgrade_id)

    def ongoing(self) -> list[Upgrade]:
        """Return the upgrades that go on, and those that are being recorded."""
        return [*self._recording.values(), *(machine.upgrade for machine in self._open.values())]

    def find(self, upgrade_id: str) -> Upgrade | None:
        """Return the upgrade with this id; None if there is none. Raises RetryLater while it is being recorded."""
        if upgrade_id in self._recording:
            raise RetryLater(f"the upgrade {upgrade_id} is being recorded", hint="try again in a second")
        machine = self._open.get(upgrade_id)
        return machine.upgrade if machine is not None else self._ended.get(upgrade_id)

    def of_job(self, job_id: JobId) -> UpgradeView | None:
        """Return the newest upgrade that the job is part of; None if there is none."""
        upgrade_id = self._newest.get(job_id)
        if upgrade_id is None:
            return None
        machine = self._open.get(upgrade_id)
        return self.view(self._ended[upgrade_id] if machine is None else machine.upgrade)

    def view(self, upgrade: Upgrade) -> UpgradeView:
        """Return the upgrade as others see it."""
        queries = queries_of(self._table.active.get(upgrade.new_id))
        bare = msgspec.structs.replace(upgrade, new=None, back=None)
        return UpgradeView(upgrade=bare, text=upgrade_text(upgrade, queries, self._end(upgrade.kept_job)))

    def _end(self, kept: JobId | None) -> str:
        """Return how the job that an upgrade has left running has ended, in words; "" if it has not."""
        if kept is None or self._table.is_running(kept):
            return ""
        try:
            return f"is {self._table.view(kept).status.value}"
        except Absent:
            return "has ended"

    def kept_places(self, namespace: str | None, creating: Collection[JobId]) -> int:
        """Return how many jobs have a place kept: between the end of one version and the acceptance of the next.

        ``namespace``: None for all. ``creating``: jobs that are being accepted.
        """
        return sum(
            namespace in (None, upgrade.namespace)
            and not any(job_id in creating or self._table.is_running(job_id) for job_id in upgrade.jobs)
            for upgrade in (machine.upgrade for machine in self._open.values())
        )
