"""Prefers task managers that have a job's local state when its next slot is assigned."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from emberkeep.base.ids import JobId
from emberkeep.slots.ledger import JobAccount, Member
from emberkeep.slots.model import ResourceProfile


class StateIndex:
    """Bytes of local state by job and task manager, as the task managers report it."""

    def __init__(self) -> None:
        self._by_job: dict[JobId, dict[Member, int]] = {}
        self._jobs_of: dict[Member, Mapping[JobId, int]] = {}

    def put(self, member: Member, sizes: Mapping[JobId, int]) -> None:
        """Replace what a task manager holds: bytes by job. An empty mapping removes the task manager."""
        sizes = {job_id: size for job_id, size in sizes.items() if size > 0}
        before = self._jobs_of.pop(member, {})
        if sizes:
            self._jobs_of[member] = sizes
        for job_id in before:
            if job_id not in sizes:
                holders = self._by_job[job_id]
                del holders[member]
                if not holders:
                    del self._by_job[job_id]
        for job_id, size in sizes.items():
            self._by_job.setdefault(job_id, {})[member] = size

    def of(self, job_id: JobId) -> Mapping[Member, int]:
        """Return the task managers that hold state of this job, with the bytes on each."""
        return self._by_job.get(job_id, {})


class Homes:
    """Task managers with state of one job, for one round of matching.

    Slots are shared out by highest averages, as seats are to parties (the D'Hondt method): the next slot goes to the
    task manager with the most state per slot of the job. A task manager with all the state gets all slots that fit; two
    with equal state share them equally. A task manager without enough room leaves the round.
    """

    def __init__(self, job: JobAccount, sizes: Mapping[Member, int], among: Iterable[Member]) -> None:
        self._job = job
        self._heap = [
            (-size / (job.spread.get(member, 0) + 1), member.ordinal, size, member)
            for member, size in sizes.items()
            if member in among
        ]
        heapq.heapify(self._heap)

    def best(self, profile: ResourceProfile) -> Member | None:
        """Return the task manager for the next slot of this size, or None if no task manager has room."""
        heap = self._heap
        while heap:
            share, ordinal, size, member = heap[0]
            if member.level == 0 or not member.fits(profile):
                heapq.heappop(heap)
                continue
            now = -size / (self._job.spread.get(member, 0) + 1)
            if now == share:
                return member
            heapq.heapreplace(heap, (now, ordinal, size, member))
        return None
