"""Slots that a job keeps while it restarts, so that jobs that only wait do not take them. Part of the SlotManager.

They are kept from the end of an attempt until the next one says what it needs; then that job is served first, with as
many slots as were kept. They are kept for as long as the attempt has lasted, and for the patience at most. So a job
whose attempts end soon after their start blocks others for no longer than it works. What is kept counts as used by
the job's namespace. Slots that the job was giving back to others are not kept, and none on a task manager that takes
nothing new. If its driver fits nowhere else, it gets the memory and custom resources of its job's own kept slots.

A driver's place is kept in the same way, see ``place_queue``.
"""

from __future__ import annotations

from collections.abc import Mapping

from emberkeep.base.ids import AllocationId, JobId
from emberkeep.slots.custom.amounts import fit, total
from emberkeep.slots.ledger import DriverNeed, JobAccount, Member
from emberkeep.slots.matching import takes_drivers
from emberkeep.slots.model import Allocation, slots_are
from emberkeep.slots.namespace_quotas import NamespaceQuotas
from emberkeep.slots.shelves import Due, Shelves


class RestartingJobs:
    """The kept slots. All times are monotonic seconds. ``jobs``, ``shelves`` and ``due`` belong to the SlotManager."""

    def __init__(self, jobs: Mapping[JobId, JobAccount], shelves: Shelves, due: Due, *, patience: float) -> None:
        self._jobs = jobs
        self._shelves = shelves
        self._due = due
        self._patience = patience
        self._keeping: dict[JobAccount, None] = {}

    def keep(self, job: JobAccount, now: float) -> None:
        """Keep the slots of an attempt that has ended, or is about to, and may be followed by another one.

        What is kept already stays as it is: the end of one attempt is noticed several times.
        """
        if job in self._keeping:
            return
        staying = [
            (allocation_id, member)
            for allocation_id, member in job.held.items()
            if allocation_id not in job.gives.leaving and member.stays_open
        ]
        if job.reclaim is not None:
            staying = staying[: 0 if job.reclaim.whole else max(0, job.reclaim.ceiling)]
        if not staying or now >= (until := job.keeps_until(now, self._patience)):
            return
        job.kept, job.kept_until, job.returning = dict(staying), until, 0
        self._keeping[job] = None

    def take_freed(self, allocation: Allocation, member: Member) -> None:
        """Keep the room of a slot that a report no longer lists. The caller must recount the member."""
        job = self._jobs.get(allocation.job_id)
        if job is not None and job.kept.get(allocation.id) is member:
            member.kept[allocation.id] = allocation

    def take_withdrawn(self, allocation: Allocation, member: Member) -> None:
        """Keep the room of a slot that no report has listed yet, and that is taken back."""
        self.take_freed(allocation, member)
        self._shelves.update(member)

    def claim(self, job: JobAccount) -> None:
        """Release what is kept for a job whose next attempt says what it needs: it gets as many slots first."""
        count = len(job.kept)
        self.release(job)
        job.returning = count

    def release(self, job: JobAccount) -> None:
        """Keep nothing for the job any longer."""
        job.returning = 0
        if job not in self._keeping:
            return
        del self._keeping[job]
        kept, job.kept = job.kept, {}
        for allocation_id, member in kept.items():
            if member.kept.pop(allocation_id, None) is not None:
                self._shelves.update(member)
        self._due.slots = True  # its namespace may have another slot

    def make_room_for_drivers(self, quotas: NamespaceQuotas) -> bool:
        """Release slots whose memory and custom resources their own job's next driver needs, which has found no place.

        Return True if that has made room now. It takes longer where the task manager has not freed the slots yet.
        """
        waiting = [(job, job.need) for job in self._keeping if job.need is not None]
        if not waiting:
            return False
        made, room = False, quotas.driver_room()
        for job, need in waiting:
            able = [
                (len(slots), index, member, slots)
                for index, member in enumerate(dict.fromkeys(job.kept.values()))
                if room.left(job) and (slots := _in_the_way(job, need, member)) is not None
            ]
            if able:
                _, _, member, slots = min(able)
                made |= self._release_some(job, member, slots)
        return made

    def _release_some(self, job: JobAccount, member: Member, slots: list[AllocationId]) -> bool:
        freed = [member.kept.pop(allocation_id, None) for allocation_id in slots]
        for allocation_id in slots:
            self._drop(job, allocation_id)
        self._shelves.update(member)
        return any(freed)

    def release_on(self, member: Member) -> None:
        """Keep nothing on a task manager that takes nothing new."""
        for job in list(self._keeping):
            for allocation_id in [key for key, where in job.kept.items() if where is member]:
                self._drop(job, allocation_id)
        if member.kept:
            member.kept.clear()
            self._shelves.update(member)

    def drop_untaken(self, allocation: Allocation) -> None:
        """Do not keep a pending slot that its task manager has not taken: there is no room behind it."""
        job = self._jobs.get(allocation.job_id)
        if job is not None and allocation.id in job.kept:
            self._drop(job, allocation.id)

    def _drop(self, job: JobAccount, allocation_id: AllocationId) -> None:
        del job.kept[allocation_id]
        if not job.kept:
            del self._keeping[job]
        self._due.slots = True  # its namespace may have another slot

    def expire(self, now: float) -> None:
        """Release what was kept for long enough."""
        for job in [job for job in self._keeping if now >= job.kept_until]:
            self.release(job)

    def said(self) -> str:
        """Return a suffix such as "; 2 slots are kept for jobs that restart" for a reason; "" if none are."""
        count = sum(len(job.kept) for job in self._keeping)
        return f"; {slots_are(count)} kept for jobs that restart" if count else ""


def _in_the_way(job: JobAccount, need: DriverNeed, member: Member) -> list[AllocationId] | None:
    """Return which of the job's kept slots must go so that its driver fits here; None if it would not fit without them.

    Slots of the job that are being freed count as free.
    """
    if not takes_drivers(member) or need.python not in ("", member.info.runtime.python):
        return None
    own = [slot for slot in (*member.allocations.values(), *member.kept.values()) if slot.job_id == job.job_id]
    own.sort(key=lambda slot: slot.id in job.kept)
    memory, custom, going = member.free_memory, member.free_custom, list[AllocationId]()
    for slot in own:
        if memory >= need.memory_mb and fit(need.custom, custom):
            break
        if memory >= need.memory_mb and not slot.profile.custom:
            continue
        memory += slot.profile.memory_mb
        custom = total((custom, slot.profile.custom))
        if slot.id in job.kept:
            going.append(slot.id)
    return going if memory >= need.memory_mb and fit(need.custom, custom) else None
