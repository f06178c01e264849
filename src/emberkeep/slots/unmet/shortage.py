"""Texts that say why a request cannot be met and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from emberkeep.slots.custom.amounts import Amounts, fit, plus, said
from emberkeep.slots.ledger import DriverNeed, Want
from emberkeep.slots.model import ResourceProfile, RuntimeVersions, SlotRequirement, slots_are
from emberkeep.slots.priorities.gangs import room_now, room_when_empty
from emberkeep.slots.shelves import Shelf, Shelves

NO_TASK_MANAGER = "no task manager is registered"
NAMED = 3  # maximum number of blocked places, or of different offers of resources, that a text names


class Capacity(Protocol):
    """What a task manager has when it is empty: a registered one, or one that a resource driver would start."""

    @property
    def slots(self) -> int: ...

    @property
    def driver_places(self) -> int: ...

    @property
    def total(self) -> ResourceProfile: ...

    @property
    def runtime(self) -> RuntimeVersions: ...


def _none_registered(shelves: Shelves) -> str:
    if not shelves.away:
        return NO_TASK_MANAGER
    return f"{NO_TASK_MANAGER} except {shelves.away} that {'is' if shelves.away == 1 else 'are'} away"


def could_host(info: Capacity, need: DriverNeed) -> bool:
    """True if the driver would fit on an empty task manager of this kind."""
    return _large_enough_for_driver(info, need) and fit(need.custom, info.total.custom)


def _large_enough_for_driver(info: Capacity, need: DriverNeed) -> bool:
    return (
        info.driver_places > 0 and need.python in ("", info.runtime.python) and need.memory_mb <= info.total.memory_mb
    )


def missing_slots(requirement: SlotRequirement, missing: int, shelves: Shelves) -> str:
    """Return a text such as "2 of 4 slots (1 core and 1408 MiB each) are missing: all 6 slots are taken"."""
    verb = "is" if missing == 1 else "are"
    slots = "slot" if requirement.count == 1 else "slots"
    size = f"{requirement.profile}" + (" each" if requirement.count > 1 else "")
    why = _slots_reason(requirement, shelves)
    return f"{missing} of {requirement.count} {slots} ({size}) {verb} missing: {why}"


def missing_gang(requirement: SlotRequirement, missing: int, shelves: Shelves) -> str:
    """Return a text such as "4 slots (1 core and 1 MiB each) are needed at once (job.gang): 2 of them are free"."""
    shelf = shelves.by_runtime.get(requirement.runtime)
    if missing == 1 or shelf is None:
        return missing_slots(requirement, missing, shelves)
    free, most = (room(shelf.members, requirement.profile) for room in (room_now, room_when_empty))
    text = f"{missing} slots ({requirement.profile} each) are needed at once (job.gang): {free} of them are free"
    return text if most >= missing else f"{text}, and all task managers together have room for {most}"


def missing_for_quota(wants: Iterable[Want], over: str) -> str:
    """Return a text such as "2 slots are missing: namespace 'a' uses all 4 slots of its quota"."""
    missing = sum(want.missing for want in wants)
    return f"{slots_are(missing)} missing: {over}"


def missing_at_once_for_quota(wants: Iterable[Want], over: str) -> str:
    """Return a text such as "4 slots are needed at once (job.gang): namespace 'a' has 2 of the 3 slots … left"."""
    return f"{sum(want.missing for want in wants)} slots are needed at once (job.gang): {over}"


def _slots_reason(requirement: SlotRequirement, shelves: Shelves) -> str:
    if not shelves.by_runtime:
        return _none_registered(shelves)
    shelf = shelves.by_runtime.get(requirement.runtime)
    if shelf is None:
        return _no_runtime(requirement.runtime, shelves)
    if shelf.slots == 0:
        return "no task manager has any slots"
    if not any(_large_enough(member.info, requirement.profile) for member in shelf.members):
        return _no_large_enough(requirement.profile, [member.info for member in shelf.members])
    usable = shelf.slots - shelf.blocked_slots - shelf.full_slots
    if usable == 0:
        return _all_closed(shelf.blocked_slots, shelf.full_slots, "slot")
    closed = _also_closed(shelf.blocked_slots, shelf.full_slots)
    if shelf.free_slots == 0:
        return ("the only slot is taken" if usable == 1 else f"all {usable} slots are taken") + closed
    free = f"{shelf.free_slots} of {usable} slots are free, but no task manager has {requirement.profile} free"
    return free + closed


def _all_closed(blocked: int, full: int, what: str) -> str:
    if blocked + full == 1:
        return f"the only {what} is on a {'blocked node' if blocked else 'node whose disk is full'}"
    if blocked and full:
        return f"all {what}s are on nodes that are blocked ({blocked}) or whose disk is full ({full})"
    return f"all {blocked + full} {what}s are on {'blocked nodes' if blocked else 'nodes whose disk is full'}"


def _also_closed(blocked: int, full: int) -> str:
    parts = [f"{count} more on {where}" for count, where in ((blocked, "blocked nodes"), (full, "full disks")) if count]
    return f" ({', '.join(parts)})" if parts else ""


def _no_runtime(runtime: RuntimeVersions, shelves: Shelves) -> str:
    if not any(other.python == runtime.python for other in shelves.by_runtime):
        return f"no task manager has Python {runtime.python}"
    return f"no task manager with Python {runtime.python} has Spark {runtime.spark}"


def missing_place(need: DriverNeed, shelves: Shelves) -> str:
    """Return a text such as "no place for the driver (1408 MiB): all 4 driver places are taken"."""
    return f"no place for the driver ({_driver_size(need)}): {_place_reason(need, shelves)}"


def _driver_size(need: DriverNeed) -> str:
    return f"{need.memory_mb} MiB and {said(need.custom)}" if need.custom else f"{need.memory_mb} MiB"


def _place_reason(need: DriverNeed, shelves: Shelves) -> str:
    able: list[Shelf] = [shelf for runtime, shelf in shelves.by_runtime.items() if need.python in ("", runtime.python)]
    if not shelves.by_runtime:
        return _none_registered(shelves)
    if not able:
        return f"no task manager has Python {need.python}"
    if not any(could_host(member.info, need) for shelf in able for member in shelf.members):
        return _no_large_enough_for_driver(need, [member.info for shelf in able for member in shelf.members])
    blocked = sum(shelf.blocked_places for shelf in able)
    full = sum(shelf.full_places for shelf in able)
    places = sum(shelf.places for shelf in able) - blocked - full
    free = sum(shelf.free_places for shelf in able)
    if places == 0 and blocked + full:
        return _all_closed(blocked, full, "driver place")
    closed = _also_closed(blocked, full)
    if free == 0:
        return (f"all {places} driver places are taken" if places > 1 else "the only driver place is taken") + closed
    lacking = f"enough free memory and {said(need.custom)} free" if need.custom else "enough free memory"
    return f"{free} of {places} driver places are free, but none on a task manager with {lacking}{closed}"


def vacant_places(places: Sequence[str]) -> str:
    """Return a suffix such as "; blocked and without a task manager now: node a" for a reason; "" for no places."""
    if not places:
        return ""
    more = f" and {len(places) - NAMED} more" if len(places) > NAMED else ""
    named = ", ".join(places[:NAMED]) + more
    return f"; blocked and without a task manager now: {named}"


def may_place_later(need: DriverNeed, shelves: Shelves) -> bool:
    """True if a task manager that is closed could host the driver."""
    able = (shelf for runtime, shelf in shelves.by_runtime.items() if need.python in ("", runtime.python))
    return any(
        member.is_closed and could_host(member.info, need)
        for shelf in able
        if shelf.blocked_places or shelf.full_places
        for member in shelf.members
    )


def may_give_later(requirement: SlotRequirement, shelves: Shelves) -> bool:
    """True if a task manager that is closed is large enough for such slots."""
    shelf = shelves.by_runtime.get(requirement.runtime)
    if shelf is None or not (shelf.blocked_slots or shelf.full_slots):
        return False
    return any(member.is_closed and _large_enough(member.info, requirement.profile) for member in shelf.members)


def obstacle(need: DriverNeed, executor: ResourceProfile | None, infos: Sequence[Capacity]) -> str:
    """Return why no subset of ``infos`` could ever run such a job; "" if some could or ``infos`` is empty."""
    if not infos or any(_hosts_both(info, need, executor) for info in infos):
        return ""  # usually the first task manager already suffices; the checks below look at all of them
    able = [info for info in infos if need.python in ("", info.runtime.python)]
    if not able:
        known = ", ".join(sorted({info.runtime.python for info in infos}))
        return f"no task manager has Python {need.python} (registered: Python {known})"
    drivers = [info for info in able if could_host(info, need)]
    if not drivers:
        return _no_large_enough_for_driver(need, able, f" for the driver ({_driver_size(need)})")
    if executor is None:
        return ""
    executors = [info for info in able if _large_enough(info, executor)]
    if not executors:
        return _no_large_enough(executor, able, f" for an executor ({executor})")
    if len(drivers) == 1 and drivers == executors:
        both = need.memory_mb + executor.memory_mb
        if both > drivers[0].total.memory_mb:
            return (
                f"the driver and one executor together need {both} MiB, but the only task manager that is large "
                f"enough for either has {drivers[0].total.memory_mb} MiB"
            )
        together = plus(need.custom, executor.custom)
        if not fit(together, drivers[0].total.custom):
            return (
                f"the driver and one executor together need {said(together)}, but the only task manager that is large "
                f"enough for either offers {said(drivers[0].total.custom)}"
            )
    return ""


def _hosts_both(info: Capacity, need: DriverNeed, executor: ResourceProfile | None) -> bool:
    if executor is None:
        return could_host(info, need)
    enough = need.memory_mb + executor.memory_mb <= info.total.memory_mb
    enough = enough and fit(plus(need.custom, executor.custom), info.total.custom)
    return enough and could_host(info, need) and _large_enough(info, executor)


def _large_enough(info: Capacity, profile: ResourceProfile) -> bool:
    return info.slots > 0 and profile.fits_in(info.total)


def _no_large_enough(profile: ResourceProfile, infos: Sequence[Capacity], what: str = "") -> str:
    """Return why none of ``infos`` is large enough: no cores and memory, or too few custom resources."""
    plain = ResourceProfile(cores=profile.cores, memory_mb=profile.memory_mb)
    able = [info for info in infos if _large_enough(info, plain)]
    if not able:
        return f"no task manager is large enough{what}: the largest has {_largest(infos)}"
    return _not_offered(profile.custom, able, what)


def _no_large_enough_for_driver(need: DriverNeed, infos: Sequence[Capacity], what: str = "") -> str:
    able = [info for info in infos if _large_enough_for_driver(info, need)]
    if not able:
        return f"no task manager is large enough{what}: the largest has {_largest(infos)}"
    return _not_offered(need.custom, able, what)


def _not_offered(custom: Amounts, able: Sequence[Capacity], what: str) -> str:
    offered = sorted({said(info.total.custom) or "none" for info in able})
    return (
        f"no task manager that is large enough{what} offers {said(custom)} "
        f"(taskmanager.resources.*; offered: {'; '.join(offered[:NAMED])})"
    )


def _largest(infos: Iterable[Capacity]) -> ResourceProfile:
    return max((info.total for info in infos), key=lambda total: (total.memory_mb, total.cores))
