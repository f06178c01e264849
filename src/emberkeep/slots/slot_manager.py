"""Decides on which task managers each job gets slots and a driver place: the pure core of the ResourceManager.

Task managers report what they hold, and their reports are the truth. Decisions that no report shows yet are kept as
*pending* (slots) and *reserved* (driver places). Jobs state their total requirements; ``match`` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import msgspec

from emberkeep.base.ids import AllocationId, JobId, TaskManagerId
from emberkeep.slots import invariants
from emberkeep.slots.job_accounts import JobAccounts
from emberkeep.slots.ledger import DriverNeed, JobAccount, Member
from emberkeep.slots.locality import StateIndex
from emberkeep.slots.matching import SlotRound
from emberkeep.slots.model import Allocation, ResourceProfile, TaskManagerInfo
from emberkeep.slots.namespace_quotas import NamespaceLimits, NamespaceQuotas
from emberkeep.slots.pending_slots import PendingSlots
from emberkeep.slots.place_queue import DriverPlaceGranted, PlaceQueue
from emberkeep.slots.priorities.gangs import KeptSlots
from emberkeep.slots.priorities.precedence import Rank, highest, said_ahead, slot_rank
from emberkeep.slots.reclaim.reclaimer import Reclaimer
from emberkeep.slots.reclaim.terms import ReclaimTerms
from emberkeep.slots.registered_task_managers import Lapsed, RegisteredTaskManagers, SilenceLimits
from emberkeep.slots.reserved.choices import ReservedStandbys
from emberkeep.slots.restarting import RestartingJobs
from emberkeep.slots.restrictions import Restrictions
from emberkeep.slots.shelves import Due, Shelves
from emberkeep.slots.supply import Supply, demand_of, standing_of
from emberkeep.slots.unmet import shortage
from emberkeep.slots.unmet.lacking_jobs import LackingJobs
from emberkeep.slots.unmet.look import Look

UNASSIGNED = -1  # slot index of an allocation that the task manager has not placed yet


class Allotted(msgspec.Struct, frozen=True):
    """A slot to allocate on the task manager ``info``."""

    allocation: Allocation
    info: TaskManagerInfo


class Matches(msgspec.Struct, frozen=True):
    places: tuple[DriverPlaceGranted, ...]
    slots: tuple[Allotted, ...]


class SlotManager:
    """Joins the accounts that matching needs, and matches.

    ``task_managers`` takes what task managers report, ``jobs`` what jobs need, ``restrictions`` which task managers get
    nothing new, ``standbys`` has which of them keep the reserved standbys of jobs. All times are monotonic seconds,
    passed in.

    ``pending_timeout``: how long a decided slot may take to appear in a report. ``patience``: how long a driver waits
    for a place before it may claim a task manager. ``quotas``: limits of each namespace. ``priority_patience``: seconds
    after which a job without a slot or a place comes before jobs with a higher priority. ``reclaim``: what namespaces
    are guaranteed, and who gives slots back for it. ``min_free_disk_mb``: a task manager whose disk has less free space
    gets nothing new, see ``Restrictions.take_disk``. ``vacant_timeout``: how long jobs wait for blocked places
    without a task manager.
    """

    def __init__(
        self,
        limits: SilenceLimits,
        *,
        pending_timeout: float,
        patience: float = 30.0,
        quotas: NamespaceLimits | None = None,
        priority_patience: float = 60.0,
        reclaim: ReclaimTerms | None = None,
        min_free_disk_mb: int = 0,
        vacant_timeout: float = 0.0,
        most_task_managers: int = 100_000,
    ) -> None:
        self._priority_patience = priority_patience
        self._kept = KeptSlots(priority_patience)
        self._members: dict[TaskManagerId, Member] = {}
        accounts: dict[JobId, JobAccount] = {}
        self._quotas = NamespaceQuotas(quotas or NamespaceLimits(), accounts)
        self._state = StateIndex()
        self._due = Due()
        self._shelves = Shelves(self._due)
        self._lacking = LackingJobs(self._due, shares=self._quotas.limits.slots > 0)
        self._places = PlaceQueue(
            self._members,
            self._shelves,
            self._state,
            self._due,
            self._quotas,
            patience=patience,
            priority_patience=priority_patience,
        )
        self._pending = PendingSlots(self._shelves, self._lacking, timeout=pending_timeout)
        self.reclaimer = Reclaimer(
            reclaim or ReclaimTerms(), accounts, self._shelves, self._kept, settles=limits.lost_after
        )
        self._restarting = RestartingJobs(accounts, self._shelves, self._due, patience=priority_patience)
        self.jobs = JobAccounts(accounts, self._members, self._pending, self._places, self._lacking, self._restarting)
        self.restrictions = Restrictions(
            self._members,
            self._shelves,
            self.jobs,
            min_free_disk_mb=min_free_disk_mb,
            vacant_timeout=vacant_timeout,
        )
        self.standbys = ReservedStandbys(self._members, accounts, self._state)
        self.task_managers = RegisteredTaskManagers(
            self._members,
            self._shelves,
            self._state,
            self.jobs,
            self.restrictions,
            limits,
            most_task_managers,
        )

    @property
    def is_due(self) -> bool:
        """True if ``match`` may have something to assign."""
        return (self._due.slots and bool(self._lacking)) or (self._due.places and bool(self._places.waiting))

    def match(self, now: float, new_id: Callable[[], AllocationId]) -> Matches:
        """Assign free driver places, then free slots, because a job without a driver uses no slot."""
        places: list[DriverPlaceGranted] = []
        if self._due.places and self._places.waiting:
            self.standbys.review()  # after a change of the leader, nothing is known yet of what task managers keep
            places = self._places.match(now)
            if self._restarting.make_room_for_drivers(self._quotas):
                places += self._places.match(now)
        self._due.places = False
        slots: list[Allotted] = []
        if self._due.slots and self._lacking:
            entitled = self.reclaimer.entitled()

            def give(job: JobAccount, member: Member, profile: ResourceProfile) -> None:
                slots.append(self._allot(job, member, profile, new_id(), now))
                entitled.take(job)
                self.reclaimer.served(job, now)
                job.claim = max(0, job.claim - 1)
                job.returning = max(0, job.returning - 1)

            self._lacking.begin_round(now)
            top = highest(self._lacking)

            def rank(job: JobAccount) -> Rank:
                is_entitled = entitled.left(job) > 0
                return slot_rank(job, now, self._priority_patience, top, is_entitled=is_entitled)

            keep_for = partial(self._kept.keep_for, now=now)
            SlotRound(self._shelves, self._state, self._quotas.slot_room(), give).run(self._lacking, rank, keep_for)
            self._lacking.end_round()
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
        self._pending.add(allocation, job, member, now)
        return Allotted(allocation, member.info)

    def is_pending(self, allocation_id: AllocationId) -> bool:
        """True if a decided slot is still needed and no report shows it yet."""
        return self._pending.member_of(allocation_id) is not None

    def take_refusal(self, allocation_id: AllocationId, now: float) -> None:
        """Withdraw a slot that the task manager certainly did not take, and avoid the task manager for a while."""
        member = self._pending.member_of(allocation_id)
        if member is not None:
            self._restarting.drop_untaken(self._pending.withdraw(allocation_id))
            self.restrictions.avoid(member, now)

    def expire(self, now: float, hears_since: float | None = 0.0) -> Lapsed:
        """Act on all timeouts that have passed.

        These are the timeouts of silent task managers, pending slots that no report shows, avoided task managers, and
        waiting requests. ``hears_since``: time from which the orphan timeout measures silence; None while silence
        proves nothing.
        """
        lapsed = self.task_managers.expire(now, hears_since)
        for allocation in self._pending.expire(now):
            self._restarting.drop_untaken(allocation)
        self.restrictions.expire(now)
        self._places.expire(now)
        self._restarting.expire(now)
        self._due.slots |= self._kept.review(now)
        self.reclaimer.review(self._lacking, now)
        self.standbys.review()
        return lapsed

    def supply(self) -> Supply:
        """Return the registered task managers and the demand that they cannot meet now."""
        moving = self.restrictions.moving()
        demand = demand_of(self._lacking, self._places.waiting, self._quotas)
        keepers = self.standbys.keepers()
        return Supply(
            standing=tuple(
                standing_of(member, gangs_wait=bool(demand.gangs), has_standby=member.info.id in keepers)
                for member in self._members.values()
            ),
            demand=replace(demand, drivers=(*demand.drivers, *(moving or ()))),
            blocked=self.restrictions.blocked,
            jobs=bool(self.jobs.by_id),
            moving=moving is not None,
        )

    def missing(self, job_id: JobId) -> str:
        """Return a message naming what the job needs but the cluster cannot provide now; "" if nothing is missing."""
        return self.missing_of([job_id])[job_id]

    def missing_of(self, job_ids: Iterable[JobId]) -> dict[JobId, str]:
        """Return such a message for each of these jobs."""
        look = Look(self._quotas, self.reclaimer, self._shelves, self._lacking, self._places.waiting)
        found = {job_id: self.jobs.by_id.get(job_id) for job_id in job_ids}
        return {job_id: "" if job is None else self._missing(job, look) for job_id, job in found.items()}

    def _missing(self, job: JobAccount, look: Look) -> str:
        # While a round is due, what it leaves unmet is not known yet.
        if job.need is not None and (over := self._quotas.no_driver_for(job, look.driver_room)):
            return "" if self._due.places else f"no place for the driver: {over}"
        if job.wants and (over := self._quotas.no_slot_for(job, look.slot_room)):
            over += self.reclaimer.said_of(job, look.entitled)
            return "" if self._due.slots else shortage.missing_for_quota(job.wants, over)
        if job.wants and (over := self._quotas.too_small_for(job, look.slot_room)):
            return "" if self._due.slots else shortage.missing_at_once_for_quota(job.wants, over)
        if job.need is not None:
            what = "" if self._due.places else look.missing_place(job.need)
            what += self._places.said_kept() if what else ""
        elif self._due.slots:
            return ""
        else:
            missing = shortage.missing_gang if job.gang and not job.held else shortage.missing_slots
            what = "; ".join(missing(want.requirement, want.missing, self._shelves) for want in job.wants)
            if what and self._kept.gang not in (None, job):
                what += f"; free slots are kept for job {self._kept.gang.job_id}, which needs all its slots at once"
            what += self._restarting.said() if what else ""
        if not what:
            return ""
        ahead = said_ahead(look.ahead_of(job)) + self.reclaimer.said_of(job, look.entitled)
        return what + ahead + shortage.vacant_places(self.restrictions.vacant())

    def waits_for_blocked(self, job_id: JobId) -> bool:
        """True if unblocking task managers, or room on their disks, may give the job what it lacks.

        A blocked place without a registered task manager counts too for a while, because its capacity is unknown.
        """
        job = self.jobs.by_id.get(job_id)
        if job is None or self._quotas.holds_back(job):
            return False
        if (job.need is not None or job.wants) and self.restrictions.awaits_vacant():
            return True
        if job.need is not None:
            return shortage.may_place_later(job.need, self._shelves)
        return any(shortage.may_give_later(want.requirement, self._shelves) for want in job.wants)

    def obstacle(
        self, need: DriverNeed, executor: ResourceProfile | None, on_demand: Sequence[shortage.Capacity] = ()
    ) -> str:
        """Return why no task manager could ever run such a job; "" if some could, or none is known.

        ``on_demand``: those that can be started, besides the registered ones.
        """
        registered = [member.info for member in self._members.values()]
        return shortage.obstacle(need, executor, [*registered, *on_demand])

    def check_invariants(self) -> None:
        """Raise AssertionError when the accounts contradict each other. For tests and the simulator."""
        invariants.check(self._members, self.jobs.by_id, self._pending.ids())
