"""A snapshot of registered task managers and unmet demand, from which the supply starts more or stops idle ones."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from emberkeep.base.ids import TaskManagerId
from emberkeep.slots.blocked import BlocklistView
from emberkeep.slots.custom.amounts import Amounts, fit, minus, times
from emberkeep.slots.ledger import DriverNeed, JobAccount, Member
from emberkeep.slots.model import ResourceProfile, RuntimeVersions, SlotRequirement
from emberkeep.slots.namespace_quotas import NamespaceQuotas
from emberkeep.slots.resource_driver import TaskManagerSpec

LOOKED_AT = 1000  # only this many of the oldest jobs are examined: enough to see that more is needed

GANGS_LAID = 10  # at most so many gangs get their task managers in one decision

Gang = tuple[tuple[SlotRequirement, int], ...]


@dataclass(frozen=True)
class RegisteredSupply:
    """One registered task manager.

    ``spare``: free capacity that is withheld for two seconds after the task manager refused a slot or was unreachable.
    ``free``: what is free for gangs, which get nothing until all that they need is free; None if none waits.
    ``blocked``: True if it gets nothing new, because of the blocklist or because it is about to stop.
    """

    id: TaskManagerId
    slots: int
    idle: bool
    away: bool
    blocked: bool
    spare: Room | None = None
    free: Room | None = None

    @property
    def usable_slots(self) -> int:
        return 0 if self.away or self.blocked else self.slots


@dataclass(frozen=True)
class Demand:
    """Needs that no registered task manager can meet now.

    ``slots``: requirements with their missing counts. ``gangs``: the same for each gang that waits, which needs
    all of them at once.
    """

    slots: tuple[tuple[SlotRequirement, int], ...] = ()
    drivers: tuple[DriverNeed, ...] = ()
    gangs: tuple[Gang, ...] = ()


@dataclass(frozen=True)
class Supply:
    """Registered task managers and unmet demand at one moment.

    ``jobs``: True if some job has not ended. ``moving``: True if drivers are on task managers that drain.
    """

    standing: tuple[RegisteredSupply, ...]
    demand: Demand
    blocked: BlocklistView
    jobs: bool = False
    moving: bool = False


@dataclass
class Room:
    """The remaining capacity of one task manager while demand is packed into it."""

    slots: int
    places: int
    cores: int
    memory_mb: int
    runtime: RuntimeVersions
    custom: Amounts = ()

    def take_driver(self, need: DriverNeed) -> bool:
        able = need.python in ("", self.runtime.python) and fit(need.custom, self.custom)
        fits = self.places > 0 and need.memory_mb <= self.memory_mb and able
        if fits:
            self.places -= 1
            self.memory_mb -= need.memory_mb
            self.custom = minus(self.custom, need.custom)
        return fits

    def take_slots(self, profile: ResourceProfile, runtime: RuntimeVersions, wanted: int) -> int:
        """Take as many of the ``wanted`` slots as fit; return their number."""
        if runtime != self.runtime:
            return 0
        by_memory = self.memory_mb // profile.memory_mb if profile.memory_mb else wanted
        by_cores = self.cores // profile.cores if profile.cores else wanted
        taken = max(0, min(wanted, self.slots, by_cores, by_memory, times(profile.custom, self.custom, wanted)))
        self.slots -= taken
        self.cores -= taken * profile.cores
        self.memory_mb -= taken * profile.memory_mb
        for _ in range(taken):
            self.custom = minus(self.custom, profile.custom)
        return taken


@dataclass(frozen=True)
class Missing:
    """``count``: task managers to start. ``waited_on``: registered ones with room that a gang will use with them."""

    count: int
    waited_on: frozenset[TaskManagerId] = frozenset()


def room_of(spec: TaskManagerSpec) -> Room:
    """Return the full capacity of a new task manager."""
    return Room(spec.slots, spec.driver_places, spec.total.cores, spec.total.memory_mb, spec.runtime, spec.total.custom)


def standing_of(member: Member, *, gangs_wait: bool = False, has_standby: bool = False) -> RegisteredSupply:
    """Return the supply's view of a registered task manager. ``has_standby``: it keeps a job's reserved standby."""
    return RegisteredSupply(
        id=member.info.id,
        slots=member.info.slots,
        idle=member.is_idle and not has_standby,
        away=member.away,
        blocked=member.is_closed or member.is_leaving,
        spare=_free_room(member) if member.avoided and member.stays_open else None,
        free=_free_room(member) if gangs_wait and member.is_open else None,
    )


def _free_room(member: Member) -> Room:
    return Room(
        max(0, member.free_slots),
        max(0, member.free_places),
        max(0, member.free_cores),
        max(0, member.free_memory - member.withheld_memory),
        member.info.runtime,
        member.free().custom,
    )


def demand_of(wanting: Iterable[JobAccount], waiting: Iterable[JobAccount], quotas: NamespaceQuotas) -> Demand:
    """Return what jobs lack, oldest job first: slots of at most LOOKED_AT jobs, and drivers of as many.

    What a job may not have because of its namespace's quota is left out.
    """
    slots: list[tuple[SlotRequirement, int]] = []
    gangs: list[Gang] = []
    drivers: list[DriverNeed] = []
    room = quotas.slot_room()
    for job in _oldest(wanting):
        if job.gang and not job.held:
            missing = sum(want.missing for want in job.wants)
            if room.left(job, missing) == missing:
                room.take(job, missing)
                gangs.append(tuple((want.requirement, want.missing) for want in job.wants))
            continue
        for want in job.wants:
            if count := room.left(job, want.missing):
                room.take(job, count)
                slots.append((want.requirement, count))
    room = quotas.driver_room()
    for job in _oldest(waiting):
        if job.need is not None and room.left(job):
            room.take(job)
            drivers.append(job.need)
    return Demand(slots=tuple(slots), drivers=tuple(drivers), gangs=tuple(gangs))


def _oldest(jobs: Iterable[JobAccount]) -> list[JobAccount]:
    return heapq.nsmallest(LOOKED_AT, jobs, key=lambda job: job.order)


@dataclass
class _Packing:
    """Packs demand into ``rooms``: first those of task managers that are coming, then at most ``most`` new ones."""

    rooms: list[Room]
    spec: TaskManagerSpec
    most: int
    started: int = 0

    def new_room(self) -> Room | None:
        if self.started >= self.most:
            return None
        self.started += 1
        room = room_of(self.spec)
        self.rooms.append(room)
        return room

    def lay_driver(self, need: DriverNeed) -> None:
        if any(room.take_driver(need) for room in self.rooms) or not room_of(self.spec).take_driver(need):
            return
        if (new := self.new_room()) is not None:
            new.take_driver(need)

    def lay_slots(self, requirement: SlotRequirement, missing: int) -> None:
        profile, runtime = requirement.profile, requirement.runtime
        for room in self.rooms:
            missing -= room.take_slots(profile, runtime, missing)
        if not room_of(self.spec).take_slots(profile, runtime, 1):
            return
        while missing > 0 and (new := self.new_room()) is not None:
            missing -= new.take_slots(profile, runtime, missing)

    def lay_gang(self, gang: Gang, free: Sequence[Room], limit: int) -> list[Room] | None:
        """Lay all slots of a gang, also into ``free`` rooms. Return what is left of them; None if not all can be laid.

        ``limit``: the most new rooms that there may be at last; it may be above ``most``.
        """
        most = sum(room.slots for room in (*free, *self.rooms)) + (limit - self.started) * self.spec.slots
        if sum(count for _, count in gang) > most:  # without a copy of each room: there may be many such gangs
            return None
        rooms, started = [replace(room) for room in (*free, *self.rooms)], self.started
        for requirement, count in gang:
            profile, runtime, missing = requirement.profile, requirement.runtime, count
            for room in rooms:
                missing -= room.take_slots(profile, runtime, missing)
            if not missing:
                continue
            each = room_of(self.spec).take_slots(profile, runtime, missing)
            if not each or started + -(-missing // each) > limit:
                return None
            started += -(-missing // each)
            last = room_of(self.spec)
            last.take_slots(profile, runtime, missing % each or each)
            rooms.append(last)
        self.started, self.rooms = started, rooms[len(free) :]
        return rooms[: len(free)]


def missing_task_managers(
    demand: Demand,
    coming: Sequence[Room],
    spec: TaskManagerSpec,
    most: int,
    *,
    free: Mapping[TaskManagerId, Room] | None = None,
    limit: int = 0,
) -> Missing:
    """Return how many task managers must be started, besides those that are ``coming``, to meet ``demand``.

    The result is at most ``most``. Demand that would not fit into an empty task manager adds none, nor does a gang for
    which ``limit`` further ones are too few. ``free``: the room that gangs find on registered task managers.
    """
    packing = _Packing([replace(room) for room in coming], spec, most)
    for need in demand.drivers:
        packing.lay_driver(need)
    for requirement, missing in demand.slots:
        packing.lay_slots(requirement, missing)
    there = {key: room for key, room in (free or {}).items() if room.slots}
    left = list(there.values())
    laid, refused = 0, set[Gang]()  # a gang that is laid never makes room for another one
    for gang in demand.gangs[:LOOKED_AT]:
        if laid == GANGS_LAID:
            break
        if gang in refused:
            continue
        if (rest := packing.lay_gang(gang, left, limit)) is None:
            refused.add(gang)
        else:
            left, laid = rest, laid + 1
    waited_on = (key for (key, room), rest in zip(there.items(), left, strict=True) if rest.slots < room.slots)
    return Missing(min(most, packing.started), frozenset(waited_on))
