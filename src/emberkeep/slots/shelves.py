"""Task managers grouped by runtime and ordered by free capacity, so that matching need not look at all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from emberkeep.slots.ledger import BlockState, Member
from emberkeep.slots.model import Allocation, RuntimeVersions


@dataclass
class Shelf:
    """The task managers of one runtime.

    ``levels[n]``: the task managers with room for n more one-core slots, in stable order.
    """

    levels: list[dict[Member, None]] = field(default_factory=list)
    members: dict[Member, None] = field(default_factory=dict)
    slots: int = 0
    free_slots: int = 0  # on task managers that are neither blocked nor full
    places: int = 0  # driver places
    free_places: int = 0  # driver places on such task managers
    blocked_slots: int = 0  # all slots of blocked task managers, free or not
    blocked_places: int = 0
    full_slots: int = 0  # all slots of task managers that are not blocked and whose disk is full
    full_places: int = 0

    def put(self, member: Member, level: int) -> None:
        while len(self.levels) <= level:
            self.levels.append({})
        self.levels[level][member] = None
        member.level = level

    def count(self, member: Member, sign: int) -> None:
        """Add (1) or subtract (-1) a member's free, blocked or full capacity in the sums."""
        if member.is_blocked:
            self.blocked_slots += sign * member.info.slots
            self.blocked_places += sign * member.info.driver_places
        elif member.disk_full:
            self.full_slots += sign * member.info.slots
            self.full_places += sign * member.info.driver_places
        else:
            self.free_slots += sign * max(0, member.free_slots)
            self.free_places += sign * max(0, member.free_places)

    def move(self, member: Member) -> None:
        level = member.usable_level()
        if level != member.level:
            del self.levels[member.level][member]
            self.put(member, level)


@dataclass
class Due:
    """The rounds of matching that may have something to assign."""

    slots: bool = False
    places: bool = False

    def both(self) -> None:
        self.slots = self.places = True


class Shelves:
    """All registered task managers by runtime, except those that are ``away``, which provide nothing.

    Makes both rounds of matching ``due`` whenever something becomes free. ``version`` grows whenever a task manager is
    put on a shelf or taken off.
    """

    def __init__(self, due: Due) -> None:
        self.away = 0
        self.version = 0
        self.by_runtime: dict[RuntimeVersions, Shelf] = {}
        self._shelf_of: dict[Member, Shelf] = {}
        self._due = due

    @property
    def members(self) -> Iterable[Member]:
        """Registered task managers that are not away."""
        return self._shelf_of.keys()

    def add(self, member: Member) -> None:
        shelf = self.by_runtime.setdefault(member.info.runtime, Shelf())
        self._shelf_of[member] = shelf
        shelf.members[member] = None
        shelf.slots += member.info.slots
        shelf.places += member.info.driver_places
        member.recount()
        shelf.count(member, 1)
        shelf.put(member, member.usable_level())
        self.version += 1
        self._due.both()

    def remove(self, member: Member) -> None:
        """Take a member off its shelf, or subtract it from the number of those that are away."""
        if member.away:
            self.away -= 1
        else:
            self._take_off(member)

    def send_away(self, member: Member) -> None:
        """Take a silent member off its shelf until ``take_back``."""
        self._take_off(member)
        self.away += 1
        member.away = True
        member.level = 0
        member.recount()

    def take_back(self, member: Member) -> None:
        """Put a member that was away back on its shelf."""
        self.away -= 1
        member.away = False
        self.add(member)

    def _take_off(self, member: Member) -> None:
        shelf = self._shelf_of.pop(member)
        del shelf.members[member]
        del shelf.levels[member.level][member]
        shelf.slots -= member.info.slots
        shelf.places -= member.info.driver_places
        shelf.count(member, -1)
        if not shelf.members:
            del self.by_runtime[member.info.runtime]
        self.version += 1

    def update(self, member: Member) -> None:
        """Count a changed member again."""
        shelf = self._shelf_of.get(member)
        if shelf is None:
            member.recount()
            return
        shelf.count(member, -1)
        gained = member.recount()
        shelf.count(member, 1)
        shelf.move(member)
        if gained and not member.is_closed:
            self._due.both()

    def reopen(self, member: Member) -> None:
        """Count a member again that is no longer closed to new work."""
        self.update(member)
        self._due.both()

    def set_block(self, member: Member, block: BlockState) -> None:
        """Follow the blocklist: count the member's capacity as blocked, or as not blocked, from now on."""
        self._close(member, block, disk_full=member.disk_full)

    def set_disk_full(self, member: Member, disk_full: bool) -> None:
        """Count the member's capacity as that of a full disk, or as usable, from now on."""
        self._close(member, member.block, disk_full=disk_full)

    def _close(self, member: Member, block: BlockState, *, disk_full: bool) -> None:
        shelf = self._shelf_of.get(member)
        if shelf is None:
            member.block, member.disk_full = block, disk_full
            return
        shelf.count(member, -1)
        member.block, member.disk_full = block, disk_full
        shelf.count(member, 1)
        shelf.move(member)
        if not member.is_closed:
            self._due.both()

    def promise(self, member: Member, allocation: Allocation) -> None:
        """Account for a newly decided slot, in constant time."""
        shelf = self._shelf_of[member]
        member.promise(allocation)
        shelf.free_slots -= 1
        shelf.move(member)
