"""One look at the accounts, to say of many jobs what they lack. Part of the SlotManager.

What is the same for all jobs is counted once, when it is first needed: else the time for n jobs would grow with n².
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from functools import cached_property

from emberkeep.slots.ledger import DriverNeed, JobAccount
from emberkeep.slots.namespace_quotas import NamespaceQuotas, NamespaceRoom
from emberkeep.slots.reclaim.reclaimer import Entitlements, Reclaimer
from emberkeep.slots.shelves import Shelves
from emberkeep.slots.unmet import shortage
from emberkeep.slots.unmet.lacking_jobs import LackingJobs


class Look:
    """Valid until an account changes. ``lacking`` lack slots; ``waiting`` wait for a driver place."""

    def __init__(
        self,
        quotas: NamespaceQuotas,
        reclaimer: Reclaimer,
        shelves: Shelves,
        lacking: LackingJobs,
        waiting: Iterable[JobAccount],
    ) -> None:
        self._quotas = quotas
        self._reclaimer = reclaimer
        self._shelves = shelves
        self._lacking = lacking
        self._waiting = waiting
        self._places: dict[DriverNeed, str] = {}

    @cached_property
    def driver_room(self) -> NamespaceRoom:
        return self._quotas.driver_room()

    @cached_property
    def slot_room(self) -> NamespaceRoom:
        return self._quotas.slot_room()

    @cached_property
    def entitled(self) -> Entitlements:
        return self._reclaimer.entitled()

    def missing_place(self, need: DriverNeed) -> str:
        """Return why there is no place for such a driver."""
        if need not in self._places:
            self._places[need] = shortage.missing_place(need, self._shelves)
        return self._places[need]

    def ahead_of(self, job: JobAccount) -> int:
        """Return the number of jobs with a higher priority that wait for the same, a driver place or slots."""
        priorities = self._lacking_priorities if job.need is None else self._waiting_priorities
        return len(priorities) - bisect_right(priorities, job.priority)

    @cached_property
    def _lacking_priorities(self) -> list[int]:
        return sorted(job.priority for job in self._lacking)

    @cached_property
    def _waiting_priorities(self) -> list[int]:
        return sorted(job.priority for job in self._waiting)
