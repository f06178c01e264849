"""Decide for which allocations this node keeps local copies, and which copies are dropped. No I/O.

- A copy is kept for the allocation whose executor wrote or read it. Drivers have none, because they read nothing twice.
- When a slot is given back, its copies are dropped (LOC-4).
- If an executor or a whole attempt ends by itself, its copies are *left behind*: the next executor or attempt may come
  back to this node. The first slots that the job gets here take them over.
- Copies that no slot claims in time after a restart of the task manager are dropped (LOC-5).
- Copies that were made for a job's reserved standby belong to it until the job has a slot here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from emberkeep.base.ids import AllocationId, JobId
from emberkeep.local_state.model import STANDBY, CopyRecord, disk_bytes

# --- effects ----------------------------------------------------------------------------------------------------------


class HandOver(msgspec.Struct, frozen=True):
    """Copies of ``source`` belong to ``target`` from now on."""

    job_id: JobId
    source: AllocationId
    target: AllocationId


class DropAllocation(msgspec.Struct, frozen=True):
    job_id: JobId
    allocation_id: AllocationId


class DropJob(msgspec.Struct, frozen=True):
    job_id: JobId


Effect = HandOver | DropAllocation | DropJob


@dataclass
class _Job:
    held: set[AllocationId] = field(default_factory=set)
    # Allocations whose copies are left behind, oldest first, each with its deadline. None: until the job is forgotten.
    left: dict[AllocationId, float | None] = field(default_factory=dict)


class Ownership:
    """Which allocation owns which copies. Belongs to the gateway's upkeep. ``now``: seconds of a monotonic clock."""

    def __init__(self, claim_timeout: float) -> None:
        """``claim_timeout``: seconds for which copies of an earlier task manager process wait for their job."""
        self._claim_timeout = claim_timeout
        self._jobs: dict[JobId, _Job] = {}

    @property
    def held(self) -> frozenset[tuple[JobId, AllocationId]]:
        """Allocations for which copies are kept now."""
        return frozenset((job_id, allocation) for job_id, job in self._jobs.items() for allocation in job.held)

    def found(self, owners: Iterable[tuple[JobId, AllocationId]], now: float) -> None:
        """Note the owners of the copies that were on the disk when the gateway was opened."""
        for job_id, allocation_id in owners:
            job = self._jobs.setdefault(job_id, _Job())
            if allocation_id not in job.held:
                job.left.setdefault(allocation_id, now + self._claim_timeout)

    def recovered(self, job_id: JobId, allocation_id: AllocationId) -> tuple[Effect, ...]:
        """Note a slot that the previous task manager process already held: the slot keeps its copies."""
        job = self._jobs.setdefault(job_id, _Job())
        job.held.add(allocation_id)
        job.left.pop(allocation_id, None)
        return ()

    def begun(self, job_id: JobId, allocation_id: AllocationId) -> tuple[Effect, ...]:
        """Note a slot that was given to the job. The slot takes over the copies that one earlier slot left behind."""
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
        """Note a slot that was given back.

        ``may_return``: leave its copies behind instead of dropping them, because its executor or attempt has ended by
        itself, or it was never used.
        """
        job = self._jobs.setdefault(job_id, _Job())
        job.held.discard(allocation_id)
        if may_return:
            job.left[allocation_id] = None
            return ()
        job.left.pop(allocation_id, None)
        return (DropAllocation(job_id, allocation_id),)

    def forgotten(self, job_id: JobId) -> tuple[Effect, ...]:
        """Drop all copies of a job that is no longer on this node."""
        self._jobs.pop(job_id, None)
        return (DropJob(job_id),)

    def reserved(self, jobs: Collection[JobId], now: float) -> tuple[Effect, ...]:
        """Note which jobs have their reserved standby here: copies are made for it.

        The first slot that the job gets takes them over. Copies of a standby that is no longer here wait for a slot as
        those of an earlier task manager process do: the next attempt may be about to begin.
        """
        for job_id in jobs:
            self._jobs.setdefault(job_id, _Job()).left[STANDBY] = None
        for job_id, job in self._jobs.items():
            if job_id not in jobs and job.left.get(STANDBY, now) is None:
                job.left[STANDBY] = now + self._claim_timeout
        return ()

    def expired(self, now: float) -> tuple[Effect, ...]:
        """Drop copies that no slot has claimed in time."""
        effects: list[Effect] = []
        for job_id, job in list(self._jobs.items()):
            over = [each for each, deadline in job.left.items() if deadline is not None and deadline <= now]
            for allocation_id in over:
                del job.left[allocation_id]
                effects.append(DropAllocation(job_id, allocation_id))
            if not job.held and not job.left:
                del self._jobs[job_id]
                if STANDBY in over:  # the job may have had nothing else here: then nobody else says that it has gone
                    effects.append(DropJob(job_id))
        return tuple(effects)

    def orphans(self, owners: Iterable[tuple[JobId, AllocationId]]) -> tuple[Effect, ...]:
        """Drop copies without an owner, which were written while their slot was being returned."""
        return tuple(
            DropAllocation(job_id, allocation_id)
            for job_id, allocation_id in dict.fromkeys(owners)
            if not self._has_owner(job_id, allocation_id)
        )

    def _has_owner(self, job_id: JobId, allocation_id: AllocationId) -> bool:
        job = self._jobs.get(job_id)
        return job is not None and (allocation_id in job.held or allocation_id in job.left)


def evictions(records: Sequence[CopyRecord], used: int, quota: int) -> tuple[CopyRecord, ...]:
    """Return the copies to drop so that the rest fits the quota.

    They are a little more than necessary, so that not every new file causes an eviction. ``records``: least recently
    used first. ``used``, ``quota``: bytes on the disk.
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


_HEADROOM = 20  # an eviction leaves a twentieth of the quota free
