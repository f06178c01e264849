"""The slot manager's accounts: what it knows about each task manager and each job, updated with every change."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from emberkeep.base.ids import AllocationId, JobId, TaskManagerId
from emberkeep.slots.custom.amounts import Amounts, amounts, by_name, fit, grows, minus, times, total
from emberkeep.slots.model import Allocation, Reclaim, ResourceProfile, SlotRequirement, TaskManagerInfo

LEFT_KEPT = 100  # maximum number of task managers remembered per job as places where it lost slots


@dataclass(frozen=True)
class DriverUse:
    """A driver in a task manager's report. ``live`` is False if the driver has exited and uses no resources."""

    job_id: JobId
    attempt: int
    memory_mb: int
    live: bool
    custom: Amounts = ()


@dataclass(frozen=True)
class DriverNeed:
    """The memory, Python version and custom resources that a driver needs. ``python``: "" accepts any version.

    ``shunned``: nodes where the driver could not be started. They are used only if no other node has room.
    """

    memory_mb: int
    python: str
    shunned: frozenset[str] = frozenset()
    custom: Amounts = ()


@dataclass(frozen=True)
class Reservation:
    """A driver place reserved for a job until a report lists its driver of this attempt or a newer one."""

    attempt: int
    memory_mb: int
    custom: Amounts = ()


@dataclass(frozen=True)
class HeldReport:
    """A task manager's report of everything that it holds. ``sequence`` grows with each report of one instance.

    - ``standby_drivers``: how many warm drivers it has ready that any job can take.
    - ``keeps_standby_drivers``: True if it keeps any.
    - ``reserved_standbys``: the jobs that have a reserved standby there, and why it is not ready; "" if it is.
    """

    sequence: int
    allocations: tuple[Allocation, ...] = ()
    drivers: tuple[DriverUse, ...] = ()
    standby_drivers: int = 0
    keeps_standby_drivers: bool = False
    reserved_standbys: Mapping[JobId, str] = field(default_factory=dict)


class BlockState(enum.Enum):
    """A task manager's state on the blocklist."""

    NONE = "none"
    BLOCKED = "blocked"  # it gets nothing new
    EVACUATED = "evacuated"  # its running work moves elsewhere as well


class EndingState(enum.Enum):
    """How close a task manager is to stopping. Only a task manager that stays gets new work."""

    STAYS = "stays"
    RETIRING = "retiring"  # idle and asked to stop; back to STAYS if the request fails
    LEAVING = "leaving"  # it reported that it is about to stop
    DRAINING = "draining"  # also leaving, but its running work moves elsewhere first


@dataclass(eq=False)
class Member:
    """One registered task manager. ``ordinal`` grows with each registration and breaks ties."""

    info: TaskManagerInfo
    ordinal: int
    sequence: int = -1
    allocations: dict[AllocationId, Allocation] = field(default_factory=dict)  # as reported
    pending: dict[AllocationId, Allocation] = field(default_factory=dict)  # decided, not reported yet
    kept: dict[AllocationId, Allocation] = field(default_factory=dict)  # freed, and kept for jobs that restart
    drivers: tuple[DriverUse, ...] = ()
    reservations: dict[JobId, Reservation] = field(default_factory=dict)
    avoided: bool = False  # it refused a slot or was unreachable a moment ago
    away: bool = False  # silent for too long: gets nothing new, keeps what jobs hold there
    block: BlockState = BlockState.NONE
    disk_full: bool = False  # nothing new is placed here until its disk has room again
    ending: EndingState = EndingState.STAYS
    standby_drivers: int = 0  # warm drivers that it has reported to be ready
    keeps_standby_drivers: bool = False
    reserved_standbys: Mapping[JobId, str] = field(default_factory=dict)  # as reported: why not ready, "" if ready
    claimed_by: JobId | None = None  # kept free for a driver that has waited for a long time
    claimed_memory: int = 0  # MiB that this driver needs
    claimed_custom: Amounts = ()  # custom resources that this driver needs, which slots leave free for it
    free_slots: int = 0
    free_cores: int = 0
    free_memory: int = 0
    free_places: int = 0
    free_custom: Amounts = ()
    level: int = 0  # one-core slots that it could give now; 0 while nothing may be placed here

    @property
    def is_blocked(self) -> bool:
        """True if the blocklist allows nothing new here."""
        return self.block is not BlockState.NONE

    @property
    def is_closed(self) -> bool:
        """True if nothing new may be placed here until somebody unblocks it or makes room on its disk."""
        return self.is_blocked or self.disk_full

    @property
    def is_leaving(self) -> bool:
        """True if the task manager reported that it is about to stop."""
        return self.ending in (EndingState.LEAVING, EndingState.DRAINING)

    @property
    def is_draining(self) -> bool:
        """True if the task manager stops once its work has moved elsewhere."""
        return self.ending is EndingState.DRAINING

    @property
    def is_evacuated(self) -> bool:
        """True if work that runs here moves elsewhere."""
        return self.block is BlockState.EVACUATED or self.is_draining

    @property
    def stays_open(self) -> bool:
        """True if the task manager may take new work, now or soon: it is not silent, not closed and not ending."""
        return not (self.away or self.is_closed) and self.ending is EndingState.STAYS

    @property
    def is_open(self) -> bool:
        """True if something new may be placed here now, provided that it fits."""
        return self.stays_open and not self.avoided

    def slot(self, allocation_id: AllocationId) -> Allocation | None:
        """Return a slot that is reported, decided or kept here; None if there is none of this id."""
        every = (self.allocations, self.pending, self.kept)
        return next((found for slots in every if (found := slots.get(allocation_id))), None)

    def recount(self) -> bool:
        """Compute the free resources. Return True if any of them has grown."""
        before = (self.free_slots, self.free_cores, self.free_memory, self.free_places)
        custom_before = self.free_custom
        cores = memory = places = 0
        for allocations in (self.allocations, self.pending, self.kept):
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
        self.free_slots = info.slots - len(self.allocations) - len(self.pending) - len(self.kept)
        self.free_cores = info.total.cores - cores
        self.free_memory = info.total.memory_mb - memory
        self.free_places = info.driver_places - places
        self.free_custom = minus(info.total.custom, self._used_custom())
        if self.is_leaving:
            self.free_slots = self.free_places = 0
        return (
            self.free_slots > before[0]
            or self.free_cores > before[1]
            or self.free_memory > before[2]
            or self.free_places > before[3]
            or grows(custom_before, self.free_custom)
        )

    def _used_custom(self) -> Amounts:
        slots = (*self.allocations.values(), *self.pending.values(), *self.kept.values())
        used = [slot.profile.custom for slot in slots]
        used += [driver.custom for driver in self.drivers if driver.live]
        used += [reservation.custom for reservation in self.reservations.values()]
        return total(used)

    def promise(self, allocation: Allocation) -> None:
        """Account for a newly decided slot, with the same result as ``recount`` but in constant time."""
        self.pending[allocation.id] = allocation
        self.free_slots -= 1
        self.free_cores -= allocation.profile.cores
        self.free_memory -= allocation.profile.memory_mb
        self.free_custom = minus(self.free_custom, allocation.profile.custom)

    @property
    def withheld_memory(self) -> int:
        """The memory in MiB that slots leave free for the driver that claims this task manager.

        While every driver place is taken, the claim waits for another driver to end, and that driver's memory becomes
        free with its place. Only what the smallest of them leaves missing is withheld.
        """
        if not self.claimed_memory or self.free_places > 0:
            return self.claimed_memory
        ending = [driver.memory_mb for driver in self.drivers if driver.live]
        ending += [reservation.memory_mb for reservation in self.reservations.values()]
        return max(0, self.claimed_memory - min(ending, default=0))

    @property
    def withheld_custom(self) -> Amounts:
        """The custom resources that slots leave free for this driver, reckoned as its memory is."""
        if not self.claimed_custom or self.free_places > 0:
            return self.claimed_custom
        ending = [by_name(driver.custom) for driver in self.drivers if driver.live]
        ending += [by_name(reservation.custom) for reservation in self.reservations.values()]
        least = {one.name: min((each.get(one.name, 0) for each in ending), default=0) for one in self.claimed_custom}
        return amounts({one.name: max(0, one.amount - least[one.name]) for one in self.claimed_custom})

    def usable_level(self) -> int:
        if not self.is_open or self.free_memory - self.withheld_memory <= 0:
            return 0
        return max(0, min(self.free_slots, self.free_cores))

    def fits(self, profile: ResourceProfile) -> bool:
        memory = self.free_memory - self.withheld_memory
        return (
            self.free_slots > 0
            and profile.cores <= self.free_cores
            and profile.memory_mb <= memory
            and fit(profile.custom, minus(self.free_custom, self.withheld_custom))
        )

    def capacity(self, profile: ResourceProfile) -> int:
        """Return how many slots of this size are free here."""
        free = self.free()
        if self.claimed_custom:
            free = msgspec.structs.replace(free, custom=minus(free.custom, self.withheld_custom))
        return _times(profile, self.free_slots, free, self.withheld_memory)

    def capacity_when_empty(self, profile: ResourceProfile) -> int:
        """Return how many slots of this size would be free here if nothing ran."""
        return _times(profile, self.info.slots, self.info.total)

    @property
    def is_idle(self) -> bool:
        """True if nothing is held, decided, kept or reserved here, and the task manager is neither away nor claimed.

        A driver that has ended counts as held until the report no longer lists it.
        """
        holds = self.allocations or self.pending or self.kept or self.drivers or self.reservations
        return not (holds or self.away or self.claimed_by is not None)

    def free(self) -> ResourceProfile:
        custom = tuple(each for each in self.free_custom if each.amount > 0)
        return ResourceProfile(cores=max(0, self.free_cores), memory_mb=max(0, self.free_memory), custom=custom)


def _times(profile: ResourceProfile, slots: int, free: ResourceProfile, withheld_mb: int = 0) -> int:
    """Return how many slots of this size fit into ``slots`` slots and the ``free`` resources."""
    bounds = [times(profile.custom, free.custom, slots)]
    if profile.cores:
        bounds.append(free.cores // profile.cores)
    if profile.memory_mb:
        bounds.append((free.memory_mb - withheld_mb) // profile.memory_mb)
    return max(0, min(bounds))


@dataclass
class Want:
    """The number of ``missing`` slots (at least one) out of those that ``requirement`` asks for."""

    requirement: SlotRequirement
    missing: int


@dataclass(frozen=True)
class Gives:
    """What a job's newest attempt can give back, as its JobMaster reports.

    ``least``: slots that it keeps in any case; 0: it can give none back. ``elastic``: the number of its executors
    changes anyway. ``leaving``: slots whose executors leave, so that these slots become free soon.
    """

    least: int = 0
    elastic: bool = False
    leaving: frozenset[AllocationId] = frozenset()


@dataclass(eq=False)
class JobAccount:
    """What a job needs and holds. ``order`` grows with each submission. ``namespace``: "" for none.

    ``is_described``: False while namespace, priority and gang are not known, because the job's graph cannot be read.

    ``priority``: jobs with a higher one come first, see ``priorities.precedence``. ``without_slot_since``: when a round
    first found the job without any slot; None if it holds or needs none.
    """

    job_id: JobId
    order: int
    attempt: int
    namespace: str = ""
    priority: int = 0
    gang: bool = False  # it gets all slots at once or none, see ``priorities.gangs``
    is_described: bool = True
    without_slot_since: float | None = None
    lacks_since: float | None = None  # when a round first left it without a slot that it lacks; None if it lacks none
    gives: Gives = field(default_factory=Gives)
    reclaim: Reclaim | None = None  # what it must give back for others, see ``reclaim``
    was_put_back: bool = False  # it has lost all its slots to others, and has got none since
    spared_until: float = 0.0  # until then it is not put back
    claim: int = 0  # slots that others give back for it
    over: bool = False  # everything that task managers report about ``attempt`` is void
    closed: int = 0  # attempts up to this one need no more slots
    need: DriverNeed | None = None  # set while the job waits for a driver place
    need_attempt: int = 0
    need_since: float = 0.0
    reserved_on: Member | None = None
    place_kept_until: float | None = None  # ``reserved_on`` is the place of its last driver, kept for the next one
    place_kept_of: int = 0  # the newest attempt whose place was kept
    begun_at: float | None = None  # when ``attempt`` began; None if an earlier leader began it
    returns: bool = False  # ``attempt`` is over, and another one follows
    # Slots of ``attempt`` that are kept for the next one, see ``restarting``.
    kept: dict[AllocationId, Member] = field(default_factory=dict)
    kept_until: float = 0.0
    returning: int = 0  # slots that the next attempt gets first, until ``kept_until``
    job_master: str = ""
    requirements: tuple[SlotRequirement, ...] = ()
    wants: list[Want] = field(default_factory=list)  # the missing part of ``requirements``
    held: dict[AllocationId, Member] = field(default_factory=dict)  # the current attempt's slots, reported or pending
    held_by_profile: dict[ResourceProfile, int] = field(default_factory=dict)
    spread: dict[Member, int] = field(default_factory=dict)  # slots held per task manager
    left: dict[Member, None] = field(default_factory=dict)  # where the attempt has lost slots, most recent last
    elsewhere: int = 0  # slots that its JobMaster holds on task managers not registered here
    last_place: TaskManagerId | None = None  # where its newest driver ran
    last_node: str = ""  # the node of ``last_place``
    streams: int = 0  # the newest attempt that has run a streaming query
    checkpoints: tuple[str, ...] = ()  # durable locations of the streaming queries of the attempt ``streams``
    standby_on: Member | None = None  # keeps its reserved standby

    @property
    def has_driver(self) -> bool:
        """True if a place is reserved for the job's driver, or the newest attempt has one and is not over."""
        return self.reserved_on is not None or (self.attempt > 0 and not self.over and self.need is None)

    @property
    def uses(self) -> int:
        """Slots that it holds or keeps for its next attempt."""
        return len(self.held) + self.elsewhere + sum(key not in self.held for key in self.kept)

    def keeps_until(self, now: float, patience: float) -> float:
        """Return how long an attempt that ends ``now`` keeps its place and slots for the next one.

        That is for as long as it has lasted, and for the patience at most.
        """
        return now + (patience if self.begun_at is None else min(patience, now - self.begun_at))

    def add(self, allocation: Allocation, member: Member) -> None:
        if allocation.id in self.held:
            return
        self.held[allocation.id] = member
        self.held_by_profile[allocation.profile] = self.held_by_profile.get(allocation.profile, 0) + 1
        self.spread[member] = self.spread.get(member, 0) + 1
        self.left.pop(member, None)
        self.without_slot_since = None

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
        self.elsewhere = 0
        self.gives, self.reclaim, self.claim = Gives(), None, 0

    def review(self) -> None:
        """Compute the missing slots, ``wants``."""
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
        if not self.wants:
            self.without_slot_since = self.lacks_since = None
