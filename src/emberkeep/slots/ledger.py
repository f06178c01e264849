"""What the slot manager knows of one task manager, and of one job: plain accounts, kept up to date change by change."""

from __future__ import annotations

from dataclasses import dataclass, field

from emberkeep.base.ids import AllocationId, JobId, TaskManagerId
from emberkeep.slots.model import Allocation, ResourceProfile, SlotRequirement, TaskManagerInfo

LEFT_KEPT = 100  # task managers of which is kept that a job has lost slots there


@dataclass(frozen=True)
class DriverUse:
    """A driver in a task manager's report. ``live`` False: it has exited and uses nothing."""

    job_id: JobId
    attempt: int
    memory_mb: int
    live: bool


@dataclass(frozen=True)
class DriverNeed:
    """What a driver needs of a task manager. ``python`` "": any. ``shunned``: nodes on which it could not be started,
    which are taken only where no other has room."""

    memory_mb: int
    python: str
    shunned: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Reservation:
    """A driver place granted to a job, until its driver (of this attempt or a newer one) shows up in a report."""

    attempt: int
    memory_mb: int


@dataclass(eq=False)
class Member:
    """One registered task manager. ``ordinal`` grows with registrations and breaks ties."""

    info: TaskManagerInfo
    ordinal: int
    sequence: int = -1
    allocations: dict[AllocationId, Allocation] = field(default_factory=dict)  # as reported
    pending: dict[AllocationId, Allocation] = field(default_factory=dict)  # ordered, not reported yet
    drivers: tuple[DriverUse, ...] = ()
    reservations: dict[JobId, Reservation] = field(default_factory=dict)
    avoided: bool = False  # it refused or was out of reach a moment ago
    away: bool = False  # silent for too long: it gets nothing new, but what jobs hold there may go on
    blocked: bool = False  # by the blocklist: nothing new goes there
    evacuated: bool = False  # what runs there goes as well
    retiring: bool = False  # it had nothing to do and is told to end: nothing new goes there
    leaving: bool = False  # it says that it is about to end: nothing new goes there
    draining: bool = False  # likewise, and what runs there is to go elsewhere first
    claimed_by: JobId | None = None  # kept free for a driver that has waited for long
    claimed_memory: int = 0  # what that driver needs: not for slots
    free_slots: int = 0
    free_cores: int = 0
    free_memory: int = 0
    free_places: int = 0
    level: int = 0  # slots of one core that it could give; 0 also while nothing may be placed on it

    def recount(self) -> bool:
        """Compute what is free; True when there is more of anything than before."""
        before = (self.free_slots, self.free_cores, self.free_memory, self.free_places)
        cores = memory = places = 0
        for allocations in (self.allocations, self.pending):
            for allocation in allocations.values():
                cores += allocation.profile.cores
                memory += allocation.profile.memory_mb
        for driver in self.drivers:
            if driver.live:
                places += 1
                memory += driver.memory_mb
        for reservation in self.reservations.values():
            places += 1
            memory += reservation.memory_mb
        info = self.info
        self.free_slots = info.slots - len(self.allocations) - len(self.pending)
        self.free_cores = info.total.cores - cores
        self.free_memory = info.total.memory_mb - memory
        self.free_places = info.driver_places - places
        if self.leaving:
            self.free_slots = self.free_places = 0
        return (
            self.free_slots > before[0]
            or self.free_cores > before[1]
            or self.free_memory > before[2]
            or self.free_places > before[3]
        )

    def promise(self, allocation: Allocation) -> None:
        """Count a slot that was decided; the same as a recount after it, in constant time."""
        self.pending[allocation.id] = allocation
        self.free_slots -= 1
        self.free_cores -= allocation.profile.cores
        self.free_memory -= allocation.profile.memory_mb

    def usable_level(self) -> int:
        closed = self.avoided or self.away or self.blocked or self.retiring
        if closed or self.free_memory - self.claimed_memory <= 0:
            return 0
        return max(0, min(self.free_slots, self.free_cores))

    def fits(self, profile: ResourceProfile) -> bool:
        memory = self.free_memory - self.claimed_memory
        return self.free_slots > 0 and profile.cores <= self.free_cores and profile.memory_mb <= memory

    @property
    def is_idle(self) -> bool:
        """Whether nothing is there and nothing is to come, ended drivers that are still told of included."""
        holds = self.allocations or self.pending or self.drivers or self.reservations
        return not (holds or self.away or self.claimed_by is not None)

    def free(self) -> ResourceProfile:
        return ResourceProfile(cores=max(0, self.free_cores), memory_mb=max(0, self.free_memory))


@dataclass
class Want:
    """``missing`` slots (at least one) of those that ``requirement`` asks for."""

    requirement: SlotRequirement
    missing: int


@dataclass(eq=False)
class JobAccount:
    """One job's wants and holdings. ``order`` grows with submissions."""

    job_id: JobId
    order: int
    attempt: int
    over: bool = False  # everything reported of ``attempt`` is void
    closed: int = 0  # attempts up to this one want no more slots
    need: DriverNeed | None = None  # a driver place is asked for
    need_attempt: int = 0
    need_since: float = 0.0
    reserved_on: Member | None = None
    job_master: str = ""
    requirements: tuple[SlotRequirement, ...] = ()
    wants: list[Want] = field(default_factory=list)  # what of them is missing
    held: dict[AllocationId, Member] = field(default_factory=dict)  # of the present attempt, reported or pending
    held_by_profile: dict[ResourceProfile, int] = field(default_factory=dict)
    spread: dict[Member, int] = field(default_factory=dict)  # slots held per task manager
    left: dict[Member, None] = field(default_factory=dict)  # where the attempt has lost slots, the last at the end
    elsewhere: int = 0  # slots that its JobMaster holds on task managers which are not registered here
    last_place: TaskManagerId | None = None  # where its newest driver was

    def add(self, allocation: Allocation, member: Member) -> None:
        if allocation.id in self.held:
            return
        self.held[allocation.id] = member
        self.held_by_profile[allocation.profile] = self.held_by_profile.get(allocation.profile, 0) + 1
        self.spread[member] = self.spread.get(member, 0) + 1
        self.left.pop(member, None)

    def drop(self, allocation: Allocation) -> None:
        member = self.held.pop(allocation.id, None)
        if member is None:
            return
        self.held_by_profile[allocation.profile] -= 1
        if self.held_by_profile[allocation.profile] == 0:
            del self.held_by_profile[allocation.profile]
        self.spread[member] -= 1
        if self.spread[member] == 0:
            del self.spread[member]
            self._leave(member)

    def _leave(self, member: Member) -> None:
        self.left[member] = None
        if len(self.left) > LEFT_KEPT:
            del self.left[next(iter(self.left))]

    def drop_all(self) -> None:
        self.held.clear()
        self.held_by_profile.clear()
        self.spread.clear()
        self.left.clear()

    def review(self) -> None:
        """Compute what is missing."""
        self.wants = []
        have = dict(self.held_by_profile)
        elsewhere = self.elsewhere
        for requirement in self.requirements:
            held = have.get(requirement.profile, 0)
            used = min(requirement.count, held)
            have[requirement.profile] = held - used
            missing = requirement.count - used
            vouched = min(elsewhere, missing)
            elsewhere -= vouched
            if vouched < missing:
                self.wants.append(Want(requirement, missing - vouched))
