"""Slots that were assigned but that no report of their task manager shows yet. Part of the SlotManager.

They count as taken, so nothing is given twice. A pending slot lapses if no report shows it in time.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from emberkeep.base.ids import AllocationId
from emberkeep.slots.ledger import JobAccount, Member
from emberkeep.slots.model import Allocation
from emberkeep.slots.shelves import Shelves
from emberkeep.slots.unmet.lacking_jobs import LackingJobs


@dataclass(frozen=True)
class _Pending:
    job: JobAccount
    member: Member
    until: float


class PendingSlots:
    """The pending slots. Each is also in ``pending`` of its member and in ``held`` of its job.

    All times are monotonic seconds. ``timeout``: how long a slot may take to appear in a report.
    """

    def __init__(self, shelves: Shelves, lacking: LackingJobs, *, timeout: float) -> None:
        self._shelves = shelves
        self._lacking = lacking
        self._timeout = timeout
        self._pending: dict[AllocationId, _Pending] = {}  # oldest first

    def ids(self) -> AbstractSet[AllocationId]:
        return self._pending.keys()

    def member_of(self, allocation_id: AllocationId) -> Member | None:
        """Return the task manager that was chosen for a pending slot; None if the slot is not pending."""
        entry = self._pending.get(allocation_id)
        return None if entry is None else entry.member

    def add(self, allocation: Allocation, job: JobAccount, member: Member, now: float) -> None:
        """Account for a newly decided slot of the job. The round of matching counts down the job's wants itself."""
        self._shelves.promise(member, allocation)
        self._pending[allocation.id] = _Pending(job, member, now + self._timeout)
        job.add(allocation, member)

    def take_reported(self, allocation_id: AllocationId, member: Member) -> bool:
        """Remove a pending slot that a report of ``member`` shows. Return True if it was pending; its job keeps it."""
        if member.pending.pop(allocation_id, None) is None:
            return False
        del self._pending[allocation_id]
        return True

    def withdraw(self, allocation_id: AllocationId) -> Allocation:
        """Take a pending slot back from its job and its task manager, and return it."""
        entry = self._pending.pop(allocation_id)
        allocation = entry.member.pending.pop(allocation_id)
        entry.job.drop(allocation)
        self._lacking.review(entry.job)
        self._shelves.update(entry.member)
        return allocation

    def withdraw_from(self, member: Member) -> None:
        """Withdraw all pending slots of a task manager."""
        for allocation_id in list(member.pending):
            self.withdraw(allocation_id)

    def expire(self, now: float) -> list[Allocation]:
        """Withdraw the slots that no report has shown in time, and return them."""
        expired = []
        while self._pending:
            allocation_id, entry = next(iter(self._pending.items()))
            if now < entry.until:
                break
            expired.append(self.withdraw(allocation_id))
        return expired
