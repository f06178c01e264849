"""The queue of drivers that wait for a place, by priority, then in the order of submission. Part of the SlotManager.

A driver that fits nowhere does not hold up smaller ones behind it until it has waited for ``patience`` seconds. Then it
claims one task manager that is large enough: that task manager takes no other drivers, and no slots that would use
memory or custom resources which the driver will still need once it has a place. So a large driver cannot starve.
Running work is never displaced. Work on the claimed task manager may itself need a slot before it can end, so a claim
lasts for ``patience`` seconds at most, and no new claim is made for the next ``patience`` seconds.

While a job restarts, the place of its last driver is kept for it, for as long as that attempt has lasted and for
``priority_patience`` seconds at most. Then its request is served before all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.slots.ledger import DriverNeed, DriverUse, EndingState, JobAccount, Member, Reservation
from emberkeep.slots.locality import StateIndex
from emberkeep.slots.matching import PlaceRound, has_place
from emberkeep.slots.model import TaskManagerInfo
from emberkeep.slots.namespace_quotas import NamespaceQuotas, NamespaceRoom
from emberkeep.slots.priorities.precedence import highest, place_rank
from emberkeep.slots.shelves import Due, Shelves
from emberkeep.slots.unmet import shortage


class DriverPlaceGranted(msgspec.Struct, frozen=True):
    """A driver place that was granted on the task manager ``info``.

    ``only_node``: after failed starts, no other node could take the driver even if nothing else ran there.
    """

    job_id: JobId
    info: TaskManagerInfo
    only_node: bool = False


class _Claim(NamedTuple):
    job: JobAccount
    member: Member
    ends: float


class PlaceQueue:
    """The queue; see the module. All times are monotonic seconds.

    ``members``, ``shelves``, ``state``, ``due`` and ``quotas`` belong to the SlotManager.
    """

    def __init__(
        self,
        members: Mapping[TaskManagerId, Member],
        shelves: Shelves,
        state: StateIndex,
        due: Due,
        quotas: NamespaceQuotas,
        *,
        patience: float,
        priority_patience: float,
    ) -> None:
        self.waiting: dict[JobAccount, None] = {}
        self._members = members
        self._shelves = shelves
        self._state = state
        self._due = due
        self._quotas = quotas
        self._patience = patience
        self._priority_patience = priority_patience
        self._kept: dict[JobAccount, None] = {}  # jobs whose last place is kept
        self._claim: _Claim | None = None
        self._no_claim_before = float("-inf")

    def request(self, job: JobAccount, need: DriverNeed, attempt: int, now: float) -> None:
        """Ask for a place for ``attempt`` (or a newer one)."""
        if job.place_kept_until is None or job.need is not None:
            self.withdraw(job)
        job.need, job.need_attempt, job.need_since = need, attempt, now
        self.waiting[job] = None
        self._due.places = True

    def withdraw(self, job: JobAccount) -> None:
        """Cancel the request, or release the place if no report lists its driver yet."""
        job.need = None
        self.waiting.pop(job, None)
        if self._claim is not None and self._claim.job is job:
            self._drop_claim()
        self.unreserve(job)
        if job.namespace and self._quotas.limits.drivers:
            self._due.places = True  # for another job of the namespace

    def unreserve(self, job: JobAccount) -> None:
        """Drop the job's reservation, because a report lists its driver or the place is withdrawn."""
        if job.place_kept_until is not None and job.namespace and self._quotas.limits.drivers:
            self._due.places = True  # for another job of the namespace
        job.place_kept_until = None
        self._kept.pop(job, None)
        member = job.reserved_on
        if member is not None:
            member.reservations.pop(job.job_id, None)
            job.reserved_on = None
            self._shelves.update(member)

    def keep(self, job: JobAccount, member: Member, driver: DriverUse, now: float) -> None:
        """Keep the place of a driver that has ended for the job's next one. The caller must recount the member.

        That begins once for each driver: its end is reported until the next attempt is recorded.
        """
        until = job.keeps_until(now, self._priority_patience)
        is_free = job.need is None and job.reserved_on is None and member.stays_open
        if is_free and until > now and driver.attempt > job.place_kept_of:
            job.reserved_on, job.place_kept_until, job.place_kept_of = member, until, driver.attempt
            member.reservations[job.job_id] = Reservation(driver.attempt + 1, driver.memory_mb, driver.custom)
            self._kept[job] = None

    def release(self, job: JobAccount) -> None:
        """Keep no place for the job."""
        if job.place_kept_until is not None:
            self.unreserve(job)

    def said_kept(self) -> str:
        """Return a suffix such as "; 1 driver place is kept for jobs that restart" for a reason; "" if none is."""
        count = len(self._kept)
        if not count:
            return ""
        return f"; {'1 driver place is' if count == 1 else f'{count} driver places are'} kept for jobs that restart"

    def member_closed(self, member: Member) -> None:
        """Drop the claim on a member that no longer accepts anything new."""
        if self._claim is not None and self._claim.member is member:
            self._drop_claim()

    def match(self, now: float) -> list[DriverPlaceGranted]:
        """Assign the free places to waiting jobs."""
        room = self._quotas.driver_room()
        places = self._serve_restarting(room)
        if self._claim is not None:
            job, member = self._claim.job, self._claim.member
            if job.need is not None and has_place(member, job.need) and room.left(job):
                places.append(self._grant(job, member))
                room.take(job)
        rounds = PlaceRound(self._members.values(), self._state)
        if rounds.is_empty and (self._claim is not None or not self._members):
            return places  # the usual case with many waiting jobs: there is no need to look at any of them
        top = highest(self.waiting)
        for job in sorted(self.waiting, key=lambda job: place_rank(job, now, self._priority_patience, top)):
            need = job.need
            if need is None or not room.left(job):
                continue
            found = rounds.choose(job, need)
            if found is not None:
                places.append(self._grant(job, found))
                room.take(job)
            elif self._may_claim(job, now):
                self._make_claim(job, need, now)
        return places

    def _serve_restarting(self, room: NamespaceRoom) -> list[DriverPlaceGranted]:
        """Give each job that has asked again the best place: at least the one that was kept, if the driver fits there.

        A place that is kept for another one is not open to it.
        """
        homes = [
            (job, job.need, job.reserved_on)
            for job in sorted(self._kept, key=lambda job: job.order)
            if job.need is not None and job.reserved_on is not None
        ]
        places: list[DriverPlaceGranted] = []
        rounds = PlaceRound(self._members.values() if homes else (), self._state)
        for job, need, home in homes:
            self.unreserve(job)
            room.take(job, -1)
            rounds.add(home)
            fits = home.is_open and has_place(home, need) and need.python in ("", home.info.runtime.python)
            found = rounds.choose(job, need) or (home if fits else None)
            if found is not None and room.left(job):
                places.append(self._grant(job, found))
                room.take(job)
        return places

    def _grant(self, job: JobAccount, member: Member) -> DriverPlaceGranted:
        need = job.need
        if need is None:
            raise AssertionError(f"job {job.job_id} asks for no driver place")
        if self._claim is not None and self._claim.job is job:
            self._drop_claim()
        job.need = None
        del self.waiting[job]
        job.reserved_on = member
        member.reservations[job.job_id] = Reservation(job.need_attempt, need.memory_mb, need.custom)
        self._shelves.update(member)
        return DriverPlaceGranted(
            job.job_id, member.info, only_node=bool(need.shunned) and self._is_only_node(member, need)
        )

    def _is_only_node(self, member: Member, need: DriverNeed) -> bool:
        """True if no task manager on another node could host the driver.

        Blocked or away task managers count as able to host it, because they may come back.
        """
        return not any(
            shortage.could_host(other.info, need)
            for other in self._members.values()
            if other.info.node_id != member.info.node_id and other.ending is EndingState.STAYS
        )

    def _may_claim(self, job: JobAccount, now: float) -> bool:
        waited = now - job.need_since >= self._patience
        return self._claim is None and waited and now >= self._no_claim_before

    def _make_claim(self, job: JobAccount, need: DriverNeed, now: float) -> None:
        able = [
            member for member in self._members.values() if member.stays_open and shortage.could_host(member.info, need)
        ]
        if able:
            member = max(able, key=lambda member: (member.free_memory, -member.ordinal))
            self._claim = _Claim(job, member, ends=now + self._patience)
            member.claimed_by, member.claimed_memory, member.claimed_custom = job.job_id, need.memory_mb, need.custom
            self._shelves.update(member)

    def _drop_claim(self) -> None:
        if self._claim is not None:
            member, self._claim = self._claim.member, None
            member.claimed_by, member.claimed_memory, member.claimed_custom = None, 0, ()
            self._shelves.reopen(member)

    def expire(self, now: float) -> None:
        """Drop an expired claim, and make a round due once a waiting job may make a claim."""
        for job in [job for job in self._kept if now >= (job.place_kept_until or 0.0)]:
            self.unreserve(job)
        if self._claim is not None and now >= self._claim.ends:
            self._no_claim_before = now + self._patience
            self._drop_claim()
        room = self._quotas.driver_room()
        if any(self._may_claim(job, now) and room.left(job) for job in self.waiting):
            self._due.places = True
