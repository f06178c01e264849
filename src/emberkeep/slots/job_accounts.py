"""The accounts of all jobs: which attempt is the newest, what it needs, and what it holds. Part of the SlotManager.

A job's accounts follow the reports of task managers. Where a task manager is silent, or a job's work moves away from
it, they follow the job's JobMaster instead.
"""

from __future__ import annotations

from collections.abc import Mapping

from emberkeep.base.ids import AllocationId, JobId, TaskManagerId
from emberkeep.slots.ledger import DriverNeed, DriverUse, HeldReport, JobAccount, Member
from emberkeep.slots.model import Allocation, SlotRequirement
from emberkeep.slots.pending_slots import PendingSlots
from emberkeep.slots.place_queue import PlaceQueue
from emberkeep.slots.restarting import RestartingJobs
from emberkeep.slots.unmet.lacking_jobs import LackingJobs


class JobAccounts:
    """The accounts. A job holds slots of its newest attempt only.

    ``members`` belongs to the SlotManager. Only this class adds and removes jobs in ``by_id``.
    """

    def __init__(
        self,
        by_id: dict[JobId, JobAccount],
        members: Mapping[TaskManagerId, Member],
        pending: PendingSlots,
        places: PlaceQueue,
        lacking: LackingJobs,
        restarting: RestartingJobs,
    ) -> None:
        self.by_id = by_id
        self._members = members
        self._pending = pending
        self._places = places
        self._lacking = lacking
        self._restarting = restarting

    def __contains__(self, job_id: JobId) -> bool:
        return job_id in self.by_id

    # --- jobs and their attempts --------------------------------------------------------------------------------------

    def add(
        self,
        job_id: JobId,
        order: int,
        attempt: int,
        namespace: str = "",
        priority: int = 0,
        *,
        gang: bool = False,
        is_described: bool = True,
    ) -> None:
        """Add a job that may have drivers and slots. ``attempt``: the newest one recorded; 0 if none is."""
        self.by_id[job_id] = JobAccount(
            job_id=job_id,
            order=order,
            attempt=attempt,
            namespace=namespace,
            priority=priority,
            gang=gang,
            is_described=is_described,
        )

    def describe(self, job_id: JobId, namespace: str, priority: int, *, gang: bool) -> None:
        """Set what was unknown when the job was added."""
        job = self.by_id.get(job_id)
        if job is not None:
            job.namespace, job.priority, job.gang, job.is_described = namespace, priority, gang, True
            self._lacking.review(job)

    def begin_attempt(self, job_id: JobId, attempt: int, now: float) -> None:
        """Follow a newer recorded attempt. The slots and drivers of older attempts are no longer valid."""
        job = self.by_id[job_id]
        if attempt > job.attempt:
            self._void(job)
            self._places.release(job)
            job.attempt, job.begun_at = attempt, now
            job.over = job.returns = False

    def end_attempt(self, job_id: JobId, attempt: int, now: float, *, returns: bool = False) -> None:
        """Invalidate this attempt's slots and driver, wherever they are reported, and release its reservations.

        ``returns``: another attempt follows, for which their room is kept, see ``restarting``.
        """
        job = self.by_id.get(job_id)
        if job is None or attempt != job.attempt:
            return
        if returns:
            self._restarting.keep(job, now)
        else:
            self._restarting.release(job)
        self._void(job)
        job.over, job.returns = True, returns
        if not returns or job.place_kept_until is None:
            self._places.withdraw(job)

    def remove(self, job_id: JobId) -> None:
        """Forget a job that has ended. Its slots and driver are no longer valid."""
        job = self.by_id.get(job_id)
        if job is not None:
            self._places.withdraw(job)
            self._restarting.release(job)
            self._void(job)
            del self.by_id[job_id]

    def _void(self, job: JobAccount) -> None:
        self._lacking.drop(job)
        for allocation_id, member in list(job.held.items()):
            if (allocation := member.pending.get(allocation_id)) is not None:
                self._pending.withdraw(allocation_id)
                self._restarting.take_withdrawn(allocation, member)
        job.drop_all()

    def is_void(self, job_id: JobId, attempt: int) -> bool:
        """True if this attempt has ended, so that its slots must be freed and its driver stopped."""
        job = self.by_id.get(job_id)
        return job is None or attempt < job.attempt or (attempt == job.attempt and job.over)

    def is_settled(self, job_id: JobId, attempt: int) -> bool:
        """True if the consequences of the attempt's end are durable, so its exit no longer needs to be reported."""
        job = self.by_id.get(job_id)
        return job is None or attempt < job.attempt

    # --- what jobs need -----------------------------------------------------------------------------------------------

    def request_place(self, job_id: JobId, need: DriverNeed, attempt: int, now: float) -> None:
        """Ask for a driver place for ``attempt`` (or a newer one)."""
        self._places.request(self.by_id[job_id], need, attempt, now)

    def withdraw_place(self, job_id: JobId) -> None:
        """Cancel the request, or release the place if no report lists its driver yet. Keep nothing for a restart."""
        job = self.by_id.get(job_id)
        if job is not None:
            job.returns = False
            self._places.withdraw(job)
            self._restarting.release(job)

    def require(
        self,
        job_id: JobId,
        attempt: int,
        job_master: str,
        requirements: tuple[SlotRequirement, ...],
        held: Mapping[AllocationId, TaskManagerId],
    ) -> None:
        """Set what the attempt needs in total, and the slots that its JobMaster ``held`` at that time.

        Ignored unless the attempt is the current one, has not ended and has not closed its requirements.
        """
        job = self.by_id.get(job_id)
        if job is None or attempt != job.attempt or job.over or attempt <= job.closed:
            return
        self._take_held(job, held)
        if requirements and job.kept:
            self._restarting.claim(job)
        if job.job_master == job_master and job.requirements == requirements:
            return
        job.job_master, job.requirements = job_master, requirements
        self._lacking.review(job)

    def close_requirements(self, job_id: JobId, attempt: int, now: float, *, returns: bool = False) -> None:
        """Drop the attempt's requirements permanently: late messages do not bring them back.

        ``returns``: another attempt follows, for which its slots are kept as they are freed.
        """
        job = self.by_id.get(job_id)
        if job is not None and attempt == job.attempt:
            if returns:
                self._restarting.keep(job, now)
            else:
                self._restarting.release(job)
            job.closed = attempt
            self._lacking.drop(job)

    # --- what jobs hold -----------------------------------------------------------------------------------------------

    def _take_held(self, job: JobAccount, held: Mapping[AllocationId, TaskManagerId]) -> None:
        """Set what the job holds on away, blocked and evacuated task managers to what its JobMaster holds there.

        An away task manager cannot be asked. On a blocked or evacuated one, ``held`` omits the slots that are about to
        leave, so the job gets replacements elsewhere while it still holds these slots.
        """
        emptying = {member for member in job.spread if member.away or member.is_evacuated or member.is_blocked}
        if emptying:
            for allocation_id, member in list(job.held.items()):
                if member in emptying and allocation_id not in held:
                    self._drop(member.allocations[allocation_id])
        for allocation_id, task_manager in held.items():
            known = self._members.get(task_manager)
            if known is not None and allocation_id in known.allocations and allocation_id not in job.held:
                self._add(known.allocations[allocation_id], known)  # it was about to leave, but stays
        elsewhere = sum(task_manager not in self._members for task_manager in held.values())
        if elsewhere != job.elsewhere:
            job.elsewhere = elsewhere
            self._lacking.review(job)

    def take_report(self, member: Member, report: HeldReport, now: float) -> None:
        """Set what a task manager holds to what it reports. The caller must recount the member."""
        self._keep_room(member, report.drivers, now)
        old, member.allocations = member.allocations, {allocation.id: allocation for allocation in report.allocations}
        for allocation in old.values():
            if allocation.id not in member.allocations:
                self._drop(allocation)
                self._restarting.take_freed(allocation, member)
        for allocation in report.allocations:
            member.kept.pop(allocation.id, None)
            if allocation.id not in old and not self._pending.take_reported(allocation.id, member):
                self._add(allocation, member)
        member.drivers = report.drivers
        member.standby_drivers = report.standby_drivers
        member.keeps_standby_drivers = report.keeps_standby_drivers
        member.reserved_standbys = report.reserved_standbys
        for driver in report.drivers:
            self._take_driver(driver, member)

    def _keep_room(self, member: Member, drivers: tuple[DriverUse, ...], now: float) -> None:
        """Keep places and slots of drivers that have ended, until it is known whether their jobs start again.

        Their executors end with them, so the same report may show that their slots are free.
        """
        live = {(driver.job_id, driver.attempt) for driver in drivers if driver.live}
        for driver in (*member.drivers, *drivers):
            job = self.by_id.get(driver.job_id)
            ended = (driver.live or driver in drivers) and (driver.job_id, driver.attempt) not in live
            if job is not None and ended and driver.attempt == job.attempt and (job.returns or not job.over):
                self._places.keep(job, member, driver, now)
                self._restarting.keep(job, now)

    def _take_driver(self, driver: DriverUse, member: Member) -> None:
        job = self.by_id.get(driver.job_id)
        if job is not None and driver.attempt == job.attempt:
            job.last_place, job.last_node = member.info.id, member.info.node_id
        reservation = member.reservations.get(driver.job_id)
        if reservation is not None and driver.attempt >= reservation.attempt:
            self._places.unreserve(self.by_id[driver.job_id])

    def _add(self, allocation: Allocation, member: Member) -> None:
        job = self.by_id.get(allocation.job_id)
        if job is not None and allocation.attempt == job.attempt and not job.over:
            job.add(allocation, member)
            self._lacking.review(job)

    def _drop(self, allocation: Allocation) -> None:
        job = self.by_id.get(allocation.job_id)
        if job is not None:
            job.drop(allocation)
            self._lacking.review(job)

    def drop_all_on(self, member: Member) -> tuple[JobId, ...]:
        """Drop what jobs hold on a task manager that has ended; return those jobs, in the order of the slots."""
        slots = (*member.allocations.values(), *member.pending.values())
        for allocation in member.allocations.values():
            self._drop(allocation)
        self.withdraw_all_on(member)
        return tuple(dict.fromkeys(allocation.job_id for allocation in slots))

    def withdraw_all_on(self, member: Member) -> None:
        """Withdraw the slots and driver places on a task manager that no report shows yet."""
        self._restarting.release_on(member)
        self._pending.withdraw_from(member)
        for job_id in list(member.reservations):
            self._places.unreserve(self.by_id[job_id])
        self._places.member_closed(member)

    def withdraw_unordered_on(self, member: Member) -> None:
        """Withdraw the slots that no report shows yet, and driver places for which no driver was ordered.

        A driver that was ordered may run there, until a report says otherwise.
        """
        self._restarting.release_on(member)
        self._pending.withdraw_from(member)
        for job_id, reservation in list(member.reservations.items()):
            if self.by_id[job_id].attempt < reservation.attempt:
                self._places.unreserve(self.by_id[job_id])
        self._places.member_closed(member)

    def close_to_claims(self, member: Member) -> None:
        """Let no waiting driver claim a task manager that takes nothing new."""
        self._places.member_closed(member)

    def use(self, member: Member) -> bool:
        """True if a job holds a slot on this task manager, has a pending one, or has a live driver there."""
        slots = (*member.allocations.values(), *member.pending.values())
        jobs = ((allocation.id, self.by_id.get(allocation.job_id)) for allocation in slots)
        if any(job is not None and allocation_id in job.held for allocation_id, job in jobs):
            return True
        return any(driver.live and not self.is_void(driver.job_id, driver.attempt) for driver in member.drivers)
