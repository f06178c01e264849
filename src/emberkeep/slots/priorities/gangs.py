"""Gangs: jobs that get all their executors at once or none, such as those with barrier stages.

A gang without any slot gets none until all that it needs are free at the same time. Smaller jobs could take each slot
that becomes free, so a gang that has waited for the patience may have free slots kept for it: then jobs that come after
it get nothing. That lasts for the patience at most. It does not begin again, for any gang, before the same time has
passed, and it never begins for a gang that would not fit on empty task managers. It begins at once for a gang for
which other jobs give slots back, and for one that has restarted.
"""

from __future__ import annotations

from collections.abc import Iterable

from emberkeep.slots.ledger import JobAccount, Member
from emberkeep.slots.model import ResourceProfile
from emberkeep.slots.priorities.precedence import comes_back, has_starved


def room_now(members: Iterable[Member], profile: ResourceProfile) -> int:
    """Return how many slots of this size the task managers could give now."""
    return sum(member.capacity(profile) for member in members if member.level > 0)


def room_when_empty(members: Iterable[Member], profile: ResourceProfile) -> int:
    """Return how many slots of this size the open task managers could give if nothing else ran there."""
    return sum(member.capacity_when_empty(profile) for member in members if member.stays_open)


class KeptSlots:
    """The gang for which free slots are kept, if any. All times are monotonic seconds."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._ends = 0.0
        self._not_before = float("-inf")
        self.gang: JobAccount | None = None

    def keep_for(self, job: JobAccount, now: float) -> bool:
        """Keep free slots for a gang that does not fit now, if it may have that. Return True if they are kept."""
        is_urgent = has_starved(job, now, self._patience) or job.claim or comes_back(job, now)
        if self.gang is None and self.may_keep_for(job, now) and is_urgent:
            self.gang, self._ends = job, now + self._patience
        return self.gang is job and now < self._ends

    def may_keep_for(self, job: JobAccount, now: float) -> bool:
        """True if free slots are kept for the gang, or could be: for no other one, and not again too soon."""
        return self.gang is job if self.gang is not None else now >= self._not_before

    def review(self, now: float) -> bool:
        """Return True if slots were kept, and are not from now on."""
        gang = self.gang
        if gang is None or (now < self._ends and gang.wants and not gang.held):
            return False
        self.gang, self._not_before = None, now + self._patience
        return True
