"""How many slots and drivers the jobs of one namespace may have at a time. Part of the SlotManager.

What a namespace uses is counted from the accounts of its jobs at each round, so it cannot differ from them. Slots that
a job is about to leave do not count: otherwise a namespace at its limit could not move its work away from a node.
What a job keeps while it restarts does count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from emberkeep.base.ids import JobId
from emberkeep.slots.ledger import JobAccount

SLOTS_KEY: Final = "security.quota.slots-per-namespace"
DRIVERS_KEY: Final = "security.quota.drivers-per-namespace"


@dataclass(frozen=True)
class NamespaceLimits:
    """The most that each namespace may have; 0: no limit. Jobs without a namespace are not limited."""

    slots: int = 0
    drivers: int = 0


class NamespaceRoom:
    """What is left for each namespace in one round. ``limit`` 0: no limit."""

    def __init__(self, limit: int, used: Mapping[str, int]) -> None:
        self._limit = limit
        self._used = dict(used)

    def left(self, job: JobAccount, wanted: int = 1) -> int:
        """Return how many of ``wanted`` the job may still get."""
        if not self._limit or not job.namespace:
            return wanted
        return max(0, min(wanted, self._limit - self._used.get(job.namespace, 0)))

    def take(self, job: JobAccount, count: int = 1) -> None:
        """Count what the job gets."""
        self._used[job.namespace] = self._used.get(job.namespace, 0) + count


class NamespaceQuotas:
    """The limits, and what the jobs use of them. ``jobs`` belongs to the SlotManager."""

    def __init__(self, limits: NamespaceLimits, jobs: Mapping[JobId, JobAccount]) -> None:
        self.limits = limits
        self._jobs = jobs

    def slot_room(self) -> NamespaceRoom:
        return self._room(self.limits.slots, lambda job: job.uses)

    def driver_room(self) -> NamespaceRoom:
        return self._room(self.limits.drivers, lambda job: int(job.has_driver))

    def _room(self, limit: int, use: Callable[[JobAccount], int]) -> NamespaceRoom:
        used: dict[str, int] = {}
        if limit:
            for job in self._jobs.values():
                used[job.namespace] = used.get(job.namespace, 0) + use(job)
        return NamespaceRoom(limit, used)

    def holds_back(self, job: JobAccount) -> bool:
        """True if the job waits for room in its namespace's quota, and not for the cluster."""
        if job.need is not None:
            return bool(self.no_driver_for(job, self.driver_room()))
        room = self.slot_room()
        return bool(job.wants) and bool(self.no_slot_for(job, room) or self.too_small_for(job, room))

    def no_slot_for(self, job: JobAccount, room: NamespaceRoom) -> str:
        """Return why the job gets no further slot; "" if its namespace has ``room``."""
        if room.left(job):
            return ""
        return f"namespace {job.namespace!r} uses {_all(self.limits.slots, 'slot')} of its quota ({SLOTS_KEY})"

    def too_small_for(self, job: JobAccount, room: NamespaceRoom) -> str:
        """Return why a gang does not get all its slots at once; "" if there is ``room``, or if it is no gang."""
        missing = sum(want.missing for want in job.wants)
        left = room.left(job, missing)
        if left >= missing or job.held or not job.gang:
            return ""
        return (
            f"namespace {job.namespace!r} has {left} of the {self.limits.slots} slots of its quota left ({SLOTS_KEY})"
        )

    def no_driver_for(self, job: JobAccount, room: NamespaceRoom) -> str:
        """Return why the job's driver gets no place; "" if its namespace has ``room``."""
        if room.left(job):
            return ""
        return f"namespace {job.namespace!r} runs {_all(self.limits.drivers, 'driver')} of its quota ({DRIVERS_KEY})"


def _all(count: int, what: str) -> str:
    return f"the only {what}" if count == 1 else f"all {count} {what}s"
