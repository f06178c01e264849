"""For whom this node keeps local copies, and which of them go: decisions without I/O.

A copy is kept for the allocation whose executor wrote or read it; drivers read nothing again, and have none. A slot
that is given back takes its copies along (LOC-4). When an executor or a whole attempt ends by itself, its copies are
*left behind*: what follows may come back here, and the first slots that the job gets take them over. What nobody claims
after a restart of the task manager goes (LOC-5).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from emberkeep.base.ids import AllocationId, JobId
from emberkeep.local_state.model import CopyRecord, disk_bytes

# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HandOver:
    """What ``source`` held belongs to ``target``."""

    job_id: JobId
    source: AllocationId
    target: AllocationId


@dataclass(frozen=True)
class DropAllocation:
    job_id: JobId
    allocation_id: AllocationId


@dataclass(frozen=True)
class DropJob:
    job_id: JobId


Effect = HandOver | DropAllocation | DropJob


@dataclass
class _Job:
    held: set[AllocationId] = field(default_factory=set)
    # What was left behind, oldest first. The time: from when on nobody is waited for; None: until the job is forgotten.
    left: dict[AllocationId, float | None] = field(default_factory=dict)


class Ownership:
    """Owned by the gateway's upkeep. ``now``: seconds of a monotonic clock."""

    def __init__(self, claim_timeout: float) -> None:
        """``claim_timeout``: seconds for which copies of an earlier life wait for their job."""
        self._claim_timeout = claim_timeout
        self._jobs: dict[JobId, _Job] = {}

    @property
    def held(self) -> frozenset[tuple[JobId, AllocationId]]:
        """Allocations for which copies are kept at present."""
        return frozenset((job_id, allocation) for job_id, job in self._jobs.items() for allocation in job.held)

    def found(self, owners: Iterable[tuple[JobId, AllocationId]], now: float) -> None:
        """Copies for these owners lay on the disk when the gateway was opened."""
        for job_id, allocation_id in owners:
            job = self._jobs.setdefault(job_id, _Job())
            if allocation_id not in job.held:
                job.left.setdefault(allocation_id, now + self._claim_timeout)

    def recovered(self, job_id: JobId, allocation_id: AllocationId) -> tuple[Effect, ...]:
        """The task manager's earlier life held this slot: its copies are its own."""
        job = self._jobs.setdefault(job_id, _Job())
        job.held.add(allocation_id)
        job.left.pop(allocation_id, None)
        return ()

    def begun(self, job_id: JobId, allocation_id: AllocationId) -> tuple[Effect, ...]:
        """A slot was given to the job. It takes over what one earlier slot left behind."""
        job = self._jobs.setdefault(job_id, _Job())
        job.held.add(allocation_id)
        if job.left.pop(allocation_id, None) is not None:
            return ()
        source = next(iter(job.left), None)
        if source is None:
            return ()
        del job.left[source]
        return (HandOver(job_id, source, allocation_id),)

    def freed(self, job_id: JobId, allocation_id: AllocationId, *, may_return: bool) -> tuple[Effect, ...]:
        """A slot was given back. ``may_return``: its executor or its attempt had ended, or it was never used."""
        job = self._jobs.setdefault(job_id, _Job())
        job.held.discard(allocation_id)
        if may_return:
            job.left[allocation_id] = None
            return ()
        job.left.pop(allocation_id, None)
        return (DropAllocation(job_id, allocation_id),)

    def forgotten(self, job_id: JobId) -> tuple[Effect, ...]:
        """Nothing of the job is here any more."""
        self._jobs.pop(job_id, None)
        return (DropJob(job_id),)

    def expired(self, now: float) -> tuple[Effect, ...]:
        """What nobody has claimed in time."""
        effects: list[Effect] = []
        for job_id, job in list(self._jobs.items()):
            for allocation_id, deadline in list(job.left.items()):
                if deadline is not None and deadline <= now:
                    del job.left[allocation_id]
                    effects.append(DropAllocation(job_id, allocation_id))
            if not job.held and not job.left:
                del self._jobs[job_id]
        return tuple(effects)

    def orphans(self, owners: Iterable[tuple[JobId, AllocationId]]) -> tuple[Effect, ...]:
        """Copies that were written while their slot was being given back: they belong to nobody."""
        return tuple(
            DropAllocation(job_id, allocation_id)
            for job_id, allocation_id in dict.fromkeys(owners)
            if not self._has_owner(job_id, allocation_id)
        )

    def _has_owner(self, job_id: JobId, allocation_id: AllocationId) -> bool:
        job = self._jobs.get(job_id)
        return job is not None and (allocation_id in job.held or allocation_id in job.left)


def evictions(records: Sequence[CopyRecord], used: int, quota: int) -> tuple[CopyRecord, ...]:
    """Which copies go so that the rest keeps to the quota, a little below it: not each new file is to evict one.

    ``records``: least recently used first. ``used``, ``quota``: bytes on the disk.
    """
    if used <= quota:
        return ()
    going: list[CopyRecord] = []
    goal = quota - quota // _HEADROOM
    for record in records:
        if used <= goal:
            break
        going.append(record)
        used -= disk_bytes(record)
    return tuple(going)


_HEADROOM = 20  # a twentieth of the quota is made free at once
