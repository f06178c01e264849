"""Decides which task manager's slots and driver places each job gets: the pure core of the ResourceManager.

Task managers report what they hold, and their reports are the truth. Decisions that no report shows yet are kept as
*pending* (slots) and *reserved* (driver places). They count as taken, so nothing is given twice. A pending slot lapses
if no report shows it in time. Jobs state their total requirements; ``match`` decides.

A silent task manager gets nothing new, but what jobs hold there presumably continues. It is *away*: what it last
reported stays in the accounts until its jobs release that, or it has been away for too long. After a restart, its first
report lists what the new instance has taken over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from emberkeep.base.errors import Conflict
from emberkeep.base.ids import AllocationId, InstanceId, JobId, TaskManagerId
from emberkeep.slots import shortage
from emberkeep.slots.blocked import BlockedPlaces, NothingBlocked
from emberkeep.slots.ledger import DriverNeed, DriverUse, JobAccount, Member
from emberkeep.slots.locality import StateIndex
from emberkeep.slots.matching import SlotRound, takes_drivers
from emberkeep.slots.model import Allocation, ResourceProfile, SlotRequirement, TaskManagerInfo
from emberkeep.slots.place_queue import Due, Granted, PlaceQueue
from emberkeep.slots.shelves import Shelves
from emberkeep.slots.supply import Supply, demand_of, standing_of

AVOIDED_FOR = 2.0  # seconds without new work for a task manager that refused or was unreachable
UNASSIGNED = -1  # slot index of an allocation that the task manager has not placed yet


@dataclass(frozen=True)
class Allotted:
    """A slot to allocate on the task manager ``info``."""

    allocation: Allocation
    info: TaskManagerInfo


@dataclass(frozen=True)
class Matches:
    places: tuple[Granted, ...]
    slots: tuple[Allotted, ...]


@dataclass(frozen=True)
class Lapsed:
    """The task managers whose state ``expire`` has changed.

    ``lost``: removed, with the jobs that held slots there. ``away``: silent for too long while jobs hold something
    there.
    """

    lost: tuple[tuple[TaskManagerInfo, tuple[JobId, ...]], ...]
    away: tuple[TaskManagerInfo, ...] = ()


class SlotManager:
    """All times are monotonic seconds, passed in.

    ``lost_after``: silence after which a task manager is away, or lost if no job holds anything there.
    ``orphan_timeout``: silence after which it is lost in any case. ``pending_timeout``: how long a decided slot may
    take to appear in a report. ``patience``: how long a driver waits for a place before it may claim a task manager.
    """

    def __init__(
        self, *, lost_after: float, orphan_timeout: float, pending_timeout: float, patience: float = 30.0
    ) -> None:
        self._lost_after = lost_after
        self._orphan_timeout = orphan_timeout
        self._pending_timeout = pending_timeout
        self._members: dict[TaskManagerId, Member] = {}
        self._heard: dict[Member, float] = {}  # oldest first
        self._away: dict[Member, float] = {}  # last contact with each
        self._pending: dict[AllocationId, tuple[Member, float]] = {}  # oldest first
        self._avoided: dict[Member, float] = {}  # oldest first
        self._jobs: dict[JobId, JobAccount] = {}
        self._wanting: dict[JobAccount, None] = {}  # jobs that lack slots
        self._shelves = Shelves()
        self._blocked: BlockedPlaces = NothingBlocked()
        self._vacant_places: tuple[str, ...] | None = None  # None: compute it at the next use
        self._emptying = False  # some task manager is blocked or evacuated: jobs need slots elsewhere
        self._state = StateIndex()
        self._ordinals = 0
        self._due = Due()
        self._places = PlaceQueue(self._members, self._shelves, self._state, self._due, patience=patience)

    # --- task managers ------------------------------------------------------------------------------------------------

    def register(
        self,
        info: TaskManagerInfo,
        sequence: int,
        allocations: tuple[Allocation, ...],
        drivers: tuple[DriverUse, ...],
        now: float,
    ) -> tuple[TaskManagerInfo, tuple[JobId, ...]] | None:
        """Take in a task manager with its first report.

        Returns the previous instance that it replaces, if any, with the jobs that held slots there and have none left
        in this report. Raises Conflict, see ``_check_successor``.
        """
        replaced = None
        member = self._members.get(info.id)
        if member is not None and member.info.instance != info.instance:
            self._check_successor(member, info)
            kept = {allocation.job_id for allocation in allocations}
            lost = tuple(job_id for job_id in self._remove(member) if job_id not in kept)
            replaced = (member.info, lost)
            member = None
        if member is None:
            self._ordinals += 1
            member = Member(info=info, ordinal=self._ordinals)
            member.blocked, member.evacuated = self._block_state(info)
            self._emptying = self._emptying or member.evacuated or member.blocked
            self._members[info.id] = member
            self._vacant_places = None
            self._shelves.add(member)
            self._due.both()
        self._take_report(member, sequence, allocations, drivers, now)
        return replaced

    @staticmethod
    def _check_successor(member: Member, new: TaskManagerInfo) -> None:
        """Raise Conflict if a process claims the id of a registered task manager that has not provably ended.

        The proof is the old instance's name: only the next process in the same working directory knows it. No proof is
        needed while the registered task manager is away.
        """
        old = member.info
        if member.away or new.predecessor == old.instance:
            return
        if old.predecessor == new.instance:
            raise Conflict(f"task manager {old.id} was started again since; this process is the older one")
        raise Conflict(
            f"task manager {old.id} is alive: {_process(old)} is registered under this id, "
            f"and {_process(new)} claims it",
            hint="give each task manager its own taskmanager.resource-id and working directory",
        )

    def report(
        self,
        task_manager: TaskManagerId,
        instance: InstanceId,
        sequence: int,
        allocations: tuple[Allocation, ...],
        drivers: tuple[DriverUse, ...],
        now: float,
    ) -> bool:
        """Take a changed report; a late one changes nothing. False: the task manager is unknown and must register."""
        member = self._member(task_manager, instance)
        if member is None:
            return False
        self._take_report(member, sequence, allocations, drivers, now)
        return True

    def heard(self, task_manager: TaskManagerId, instance: InstanceId, sequence: int, now: float) -> bool:
        """Take a heartbeat whose report equals the newest one, in constant time. False: unknown, must register."""
        member = self._member(task_manager, instance)
        if member is None:
            return False
        member.sequence = max(member.sequence, sequence)
        self._is_heard(member, now)
        return True

    def _is_heard(self, member: Member, now: float) -> None:
        self._heard.pop(member, None)
        self._heard[member] = now
        if member.away:
            del self._away[member]
            self._shelves.away -= 1
            self._vacant_places = None
            member.away = False
            self._shelves.add(member)
            self._due.both()

    def holds_state(self, task_manager: TaskManagerId, sizes: Mapping[JobId, int]) -> None:
        """Note the bytes of local state on a registered task manager, by job."""
        self._state.put(self._members[task_manager], sizes)

    def _member(self, task_manager: TaskManagerId, instance: InstanceId) -> Member | None:
        member = self._members.get(task_manager)
        if member is not None and member.info.instance != instance:
            raise Conflict(f"task manager {task_manager} was started again since; this process is the older one")
        return member

    def _take_report(
        self,
        member: Member,
        sequence: int,
        allocations: tuple[Allocation, ...],
        drivers: tuple[DriverUse, ...],
        now: float,
    ) -> None:
        self._is_heard(member, now)
        if sequence <= member.sequence:
            return
        member.sequence = sequence
        old, member.allocations = member.allocations, {allocation.id: allocation for allocation in allocations}
        for allocation in old.values():
            if allocation.id not in member.allocations:
                self._unaccount(allocation)
        for allocation in allocations:
            if allocation.id not in old and not self._is_now_reported(member, allocation.id):
                self._account(allocation, member)
        member.drivers = drivers
        for driver in drivers:
            self._note_place(driver, member)
            reservation = member.reservations.get(driver.job_id)
            if reservation is not None and driver.attempt >= reservation.attempt:
                self._places.unreserve(self._jobs[driver.job_id])
        self._changed(member)

    def _note_place(self, driver: DriverUse, member: Member) -> None:
        job = self._jobs.get(driver.job_id)
        if job is not None and driver.attempt == job.attempt:
            job.last_place = member.info.id

    def _account(self, allocation: Allocation, member: Member) -> None:
        job = self._jobs.get(allocation.job_id)
        if job is not None and allocation.attempt == job.attempt and not job.over:
            job.add(allocation, member)
            self._review(job)

    def _unaccount(self, allocation: Allocation) -> None:
        job = self._jobs.get(allocation.job_id)
        if job is not None:
            job.drop(allocation)
            self._review(job)

    def _changed(self, member: Member) -> None:
        if self._shelves.update(member):
            self._due.both()

    def leave(self, task_manager: TaskManagerId) -> tuple[TaskManagerInfo, tuple[JobId, ...]]:
        """Remove a task manager that has shut down; return it with the jobs that held or awaited slots there."""
        member = self._members[task_manager]
        return member.info, self._remove(member)

    def _remove(self, member: Member) -> tuple[JobId, ...]:
        """Forget a task manager; return the jobs with slots there, reported or pending, in the order of the slots."""
        holders: dict[JobId, None] = {}
        for allocation in (*member.allocations.values(), *member.pending.values()):
            holders[allocation.job_id] = None
            self._unaccount(allocation)
        self._withdraw_from(member)
        if member.away:
            self._shelves.away -= 1
        else:
            self._shelves.remove(member)
        self._heard.pop(member, None)
        self._away.pop(member, None)
        self._state.put(member, {})
        self._vacant_places = None
        del self._members[member.info.id]
        return tuple(holders)

    def _withdraw_from(self, member: Member) -> None:
        """Drop all decisions for this task manager. The caller corrects the accounts of the jobs."""
        for allocation_id in member.pending:
            self._pending.pop(allocation_id, None)
        member.pending.clear()
        for job_id in list(member.reservations):
            self._places.unreserve(self._jobs[job_id])
        self._places.member_gone(member)
        self._avoided.pop(member, None)
        member.avoided = False

    def _send_away(self, member: Member, heard_at: float) -> None:
        """Mark a silent task manager away: allocate nothing new there, keep what jobs hold."""
        for allocation in member.pending.values():
            self._unaccount(allocation)
        self._withdraw_from(member)
        self._heard.pop(member, None)
        self._shelves.remove(member)
        self._shelves.away += 1
        self._vacant_places = None
        member.away = True
        member.level = 0
        member.recount()
        self._away[member] = heard_at

    def _is_needed(self, member: Member) -> bool:
        """True if a job holds a slot there, has a pending one, or has a live driver there."""
        slots = (*member.allocations.values(), *member.pending.values())
        jobs = ((allocation.id, self._jobs.get(allocation.job_id)) for allocation in slots)
        if any(job is not None and allocation_id in job.held for allocation_id, job in jobs):
            return True
        return any(driver.live and not self.is_void(driver.job_id, driver.attempt) for driver in member.drivers)

    def retire(self, task_manager: TaskManagerId) -> bool:
        """Place nothing new on a task manager that will be asked to end. Return False if it is busy or unknown."""
        member = self._members.get(task_manager)
        if member is None or not member.is_idle:
            return False
        member.retiring = True
        self._shelves.update(member)
        return True

    def recall(self, task_manager: TaskManagerId) -> None:
        """Use a task manager as before: the request to end certainly did not reach it."""
        member = self._members.get(task_manager)
        if member is not None and member.retiring:
            member.retiring = False
            if not member.away:
                self._shelves.update(member)
                self._due.both()

    def leaves(self, task_manager: TaskManagerId, *, drains: bool) -> None:
        """Place nothing new on a task manager that reports its coming end.

        ``drains``: True if its running work moves elsewhere first.
        """
        member = self._members[task_manager]
        if not member.leaving:
            member.leaving = True
            self._withdraw_decided(member)
            if member.away:
                member.recount()
            else:
                self._shelves.update(member)
        if drains:
            member.draining = member.evacuated = self._emptying = True

    def draining(self) -> frozenset[TaskManagerId]:
        """Return the task managers that are about to end and whose work moves elsewhere first."""
        return frozenset(key for key, member in self._members.items() if member.draining)

    def movable(self) -> frozenset[JobId]:
        """Return the jobs with a driver on a draining task manager for which another one has room.

        Memory that the job's own slots use on the other task manager counts as free.
        """
        return frozenset(
            driver.job_id
            for member in self._members.values()
            if member.draining
            for driver in member.drivers
            if driver.live and self._has_room(driver, member)
        )

    def _has_room(self, driver: DriverUse, home: Member) -> bool:
        for member in self._members.values():
            if takes_drivers(member) and member.info.runtime.python == home.info.runtime.python:
                own = (one.profile.memory_mb for one in member.allocations.values() if one.job_id == driver.job_id)
                if member.free_memory + sum(own) >= driver.memory_mb:
                    return True
        return False

    # --- blocklist ----------------------------------------------------------------------------------------------------

    def block(self, places: BlockedPlaces) -> None:
        """Follow a new blocklist: place nothing new on the task managers that ``places`` blocks.

        Withdraw pending slots there, and driver places for which no driver was ordered yet. Task managers that are no
        longer blocked get work again.
        """
        self._blocked, self._vacant_places = places, None
        for member in self._members.values():
            blocked, evacuated = self._block_state(member.info)
            member.evacuated = evacuated or member.draining
            if blocked == member.blocked:
                continue
            if member.away:
                member.blocked = blocked
            else:
                self._shelves.set_blocked(member, blocked)
            if blocked:
                self._withdraw_decided(member)
            else:
                self._due.both()
        self._emptying = any(member.evacuated or member.blocked for member in self._members.values())

    def _block_state(self, info: TaskManagerInfo) -> tuple[bool, bool]:
        """Return (blocked, evacuated)."""
        where = (info.id, info.node_id)
        return self._blocked.is_blocked(*where), self._blocked.is_evacuated(*where)

    def _withdraw_decided(self, member: Member) -> None:
        for allocation_id in list(member.pending):
            self._free_pending(allocation_id)
        for job_id, reservation in list(member.reservations.items()):
            job = self._jobs[job_id]
            if job.attempt < reservation.attempt:  # else its driver may run there, until a report says otherwise
                self._places.unreserve(job)
                self._changed(member)
        self._places.member_closed(member)

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def add_job(self, job_id: JobId, order: int, attempt: int) -> None:
        """Add a job that may have drivers and slots. ``attempt``: the newest one recorded, 0 for none."""
        self._jobs[job_id] = JobAccount(job_id=job_id, order=order, attempt=attempt)

    def begin_attempt(self, job_id: JobId, attempt: int) -> None:
        """Follow a newer recorded attempt. The slots and drivers of older attempts are no longer valid."""
        job = self._jobs[job_id]
        if attempt > job.attempt:
            self._void(job)
            job.attempt = attempt
            job.over = False

    def end_attempt(self, job_id: JobId, attempt: int) -> None:
        """Invalidate this attempt's slots and driver, wherever they are reported, and release its reservations."""
        job = self._jobs.get(job_id)
        if job is not None and attempt == job.attempt:
            self._void(job)
            job.over = True
            self.withdraw_place(job_id)

    def remove_job(self, job_id: JobId) -> None:
        """Forget a job that has ended. Its slots and driver are no longer valid."""
        job = self._jobs.get(job_id)
        if job is not None:
            self.withdraw_place(job_id)
            self._void(job)
            del self._jobs[job_id]

    def _void(self, job: JobAccount) -> None:
        job.requirements, job.wants = (), []
        self._wanting.pop(job, None)
        for allocation_id in list(job.held):
            member = job.held[allocation_id]
            if allocation_id in member.pending:
                self._free_pending(allocation_id)
        job.drop_all()

    def request_place(self, job_id: JobId, need: DriverNeed, attempt: int, now: float) -> None:
        """Ask for a driver place for ``attempt`` (or a newer one)."""
        self._places.request(self._jobs[job_id], need, attempt, now)

    def withdraw_place(self, job_id: JobId) -> None:
        """Cancel the request, or release the place if no report lists its driver yet."""
        job = self._jobs.get(job_id)
        if job is not None:
            self._places.withdraw(job)

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
        job = self._jobs.get(job_id)
        if job is None or attempt != job.attempt or job.over or attempt <= job.closed:
            return
        self._take_holdings(job, held)
        if job.job_master == job_master and job.requirements == requirements:
            return
        job.job_master, job.requirements = job_master, requirements
        self._review(job)

    def _take_holdings(self, job: JobAccount, held: Mapping[AllocationId, TaskManagerId]) -> None:
        """Correct the job's holdings by what its JobMaster holds, where a task manager is away, blocked or evacuated.

        An away task manager cannot be asked. On a blocked or evacuated one, ``held`` has no slots that are about to
        leave, so the job gets as many elsewhere while it still holds those.
        """
        if self._away or self._emptying:
            for allocation_id, member in list(job.held.items()):
                if (member.away or member.evacuated or member.blocked) and allocation_id not in held:
                    self._unaccount(member.allocations[allocation_id])
        for allocation_id, task_manager in held.items():
            known = self._members.get(task_manager)
            if known is not None and allocation_id in known.allocations and allocation_id not in job.held:
                self._account(known.allocations[allocation_id], known)  # it was about to leave, and stays
        elsewhere = sum(task_manager not in self._members for task_manager in held.values())
        if elsewhere != job.elsewhere:
            job.elsewhere = elsewhere
            self._review(job)

    def close_requirements(self, job_id: JobId, attempt: int) -> None:
        """Drop the attempt's requirements permanently: late messages do not bring them back."""
        job = self._jobs.get(job_id)
        if job is not None and attempt == job.attempt:
            job.closed = attempt
            job.requirements, job.wants = (), []
            self._wanting.pop(job, None)

    def _review(self, job: JobAccount) -> None:
        job.review()
        if job.wants:
            self._wanting[job] = None
            self._due.slots = True
        else:
            self._wanting.pop(job, None)

    # --- decisions ----------------------------------------------------------------------------------------------------

    @property
    def dirty(self) -> bool:
        """True if ``match`` may have something to assign."""
        return (self._due.slots and bool(self._wanting)) or (self._due.places and bool(self._places.waiting))

    def match(self, now: float, new_id: Callable[[], AllocationId]) -> Matches:
        """Assign free driver places, then free slots, because a job without a driver uses no slot."""
        places: list[Granted] = []
        if self._due.places and self._places.waiting:
            places = self._places.match(now)
        self._due.places = False
        slots: list[Allotted] = []
        if self._due.slots and self._wanting:

            def give(job: JobAccount, member: Member, profile: ResourceProfile) -> None:
                slots.append(self._allot(job, member, profile, new_id(), now))

            SlotRound(self._shelves, self._state, give).run(self._wanting)
            for job in list(self._wanting):
                job.wants = [want for want in job.wants if want.missing]
                if not job.wants:
                    del self._wanting[job]
        self._due.slots = False
        return Matches(tuple(places), tuple(slots))

    def _allot(
        self, job: JobAccount, member: Member, profile: ResourceProfile, new_id: AllocationId, now: float
    ) -> Allotted:
        allocation = Allocation(
            id=new_id,
            slot_index=UNASSIGNED,
            job_id=job.job_id,
            attempt=job.attempt,
            profile=profile,
            job_master=job.job_master,
        )
        self._shelves.promise(member, allocation)
        self._pending[allocation.id] = (member, now + self._pending_timeout)
        job.add(allocation, member)
        return Allotted(allocation, member.info)

    def is_pending(self, allocation_id: AllocationId) -> bool:
        """True if a decided slot is still needed and no report shows it yet."""
        return allocation_id in self._pending

    def refused(self, allocation_id: AllocationId, now: float) -> None:
        """Withdraw a slot that the task manager certainly did not take, and avoid the task manager for a moment."""
        entry = self._pending.get(allocation_id)
        if entry is None:
            return
        member = entry[0]
        self._free_pending(allocation_id)
        self._avoided.pop(member, None)
        self._avoided[member] = now + AVOIDED_FOR
        member.avoided = True
        self._shelves.update(member)

    def _free_pending(self, allocation_id: AllocationId) -> None:
        member, _ = self._pending.pop(allocation_id)
        allocation = member.pending.pop(allocation_id)
        self._unaccount(allocation)
        self._changed(member)

    def _is_now_reported(self, member: Member, allocation_id: AllocationId) -> bool:
        """True if the slot was pending until now. The job's account stays as it is."""
        if member.pending.pop(allocation_id, None) is None:
            return False
        del self._pending[allocation_id]
        return True

    def expire(self, now: float, hears_since: float | None = 0.0) -> Lapsed:
        """Act on all timeouts that have passed.

        They are those of silent task managers, pending slots that no report shows, avoided members, and waiting
        requests. ``hears_since``: time from which on the orphan timeout counts silence; None if it does not count now.
        """
        lost, away = [], []
        while self._heard:
            member, heard_at = next(iter(self._heard.items()))
            if now - heard_at < self._lost_after:
                break
            if self._is_needed(member):
                self._send_away(member, heard_at)
                away.append(member.info)
            else:
                lost.append((member.info, self._remove(member)))
        for member, heard_at in list(self._away.items()):
            orphaned = hears_since is not None and now - max(heard_at, hears_since) >= self._orphan_timeout
            if orphaned or not self._is_needed(member):
                lost.append((member.info, self._remove(member)))
        while self._pending:
            allocation_id, (_, until) = next(iter(self._pending.items()))
            if now < until:
                break
            self._free_pending(allocation_id)
        while self._avoided:
            member, until = next(iter(self._avoided.items()))
            if now < until:
                break
            del self._avoided[member]
            member.avoided = False
            self._shelves.update(member)
            self._due.both()
        self._places.expire(now)
        gone = {info.instance for info, _ in lost}
        return Lapsed(tuple(lost), tuple(info for info in away if info.instance not in gone))

    # --- what others ask ----------------------------------------------------------------------------------------------

    def supply(self) -> Supply:
        """Return the registered task managers and the demand that they cannot meet now."""
        return Supply(
            standing=tuple(standing_of(member) for member in self._members.values()),
            demand=demand_of(self._wanting, self._places.waiting),
            blocked=self._blocked,
            jobs=bool(self._jobs),
        )

    def has_job(self, job_id: JobId) -> bool:
        return job_id in self._jobs

    def is_void(self, job_id: JobId, attempt: int) -> bool:
        """True if this attempt has ended, so that its slots must be freed and its driver ended."""
        job = self._jobs.get(job_id)
        return job is None or attempt < job.attempt or (attempt == job.attempt and job.over)

    def is_settled(self, job_id: JobId, attempt: int) -> bool:
        """True if the consequences of the attempt's end are durable, so its exit need not be reported any more."""
        job = self._jobs.get(job_id)
        return job is None or attempt < job.attempt

    def members(self) -> list[Member]:
        """Return all registered task managers, by id."""
        return [self._members[key] for key in sorted(self._members)]

    def member(self, task_manager: TaskManagerId) -> Member | None:
        return self._members.get(task_manager)

    def missing(self, job_id: JobId) -> str:
        """Return a text that names what the job needs and the cluster cannot provide now; "" if nothing is missing."""
        job = self._jobs.get(job_id)
        if job is None:
            return ""
        # While a round is due, what it leaves unmet is not known yet.
        if job.need is not None:
            what = "" if self._due.places else shortage.missing_place(job.need, self._shelves)
        elif self._due.slots:
            return ""
        else:
            what = "; ".join(
                shortage.missing_slots(want.requirement, want.missing, self._shelves) for want in job.wants
            )
        return what and what + shortage.vacant_places(self._vacant())

    def waits_for_blocked(self, job_id: JobId) -> bool:
        """True if unblocking task managers may give the job what it lacks.

        A blocked place without a registered task manager counts too, because its capacity is unknown.
        """
        job = self._jobs.get(job_id)
        if job is None:
            return False
        if (job.need is not None or job.wants) and self._vacant():
            return True
        if job.need is not None:
            return shortage.may_place_later(job.need, self._shelves)
        return any(shortage.may_give_later(want.requirement, self._shelves) for want in job.wants)

    def _vacant(self) -> tuple[str, ...]:
        """Return the blocked places without a task manager that sends heartbeats."""
        if self._vacant_places is None:
            present = ((member.info.id, member.info.node_id) for member in self._heard)
            self._vacant_places = self._blocked.vacant(present)
        return self._vacant_places

    def obstacle(self, need: DriverNeed, executor: ResourceProfile | None) -> str:
        """Return why no registered task manager could ever run such a job; "" if some could or none is registered."""
        return shortage.obstacle(need, executor, [member.info for member in self._members.values()])

    def check_invariants(self) -> None:
        """Raise AssertionError when the accounts contradict each other. For tests and the simulator."""
        from emberkeep.slots.invariants import check

        check(self._members, self._jobs, self._pending)


def _process(info: TaskManagerInfo) -> str:
    return f"pid {info.pid} on {info.host} ({info.address})"
