"""Task managers grouped by runtime and ordered by free capacity, so that matching need not look at all of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from emberkeep.slots.ledger import Member
from emberkeep.slots.model import Allocation, RuntimeVersions


@dataclass
class Shelf:
    """The task managers of one runtime.

    ``levels[n]``: the task managers with room for n more one-core slots, in stable order.
    """

    levels: list[dict[Member, None]] = field(default_factory=list)
    members: dict[Member, None] = field(default_factory=dict)
    slots: int = 0
    free_slots: int = 0  # on task managers that are not blocked
    places: int = 0  # driver places
    free_places: int = 0  # driver places on task managers that are not blocked
    blocked_slots: int = 0  # all slots of blocked task managers, free or not
    blocked_places: int = 0

    def put(self, member: Member, level: int) -> None:
        while len(self.levels) <= level:
            self.levels.append({})
        self.levels[level][member] = None
        member.level = level

    def count(self, member: Member, sign: int) -> None:
        """Add (1) or subtract (-1) a member's free or blocked capacity in the sums."""
        if member.blocked:
            self.blocked_slots += sign * member.info.slots
            self.blocked_places += sign * member.info.driver_places
        else:
            self.free_slots += sign * max(0, member.free_slots)
            self.free_places += sign * max(0, member.free_places)

    def move(self, member: Member) -> None:
        level = member.usable_level()
        if level != member.level:
            del self.levels[member.level][member]
            self.put(member, level)


class Shelves:
    """All registered task managers by runtime, except those that are ``away``, which give nothing."""

    def __init__(self) -> None:
        self.away = 0
        self.by_runtime: dict[RuntimeVersions, Shelf] = {}
        self._shelf_of: dict[Member, Shelf] = {}

    def add(self, member: Member) -> None:
        shelf = self.by_runtime.setdefault(member.info.runtime, Shelf())
        self._shelf_of[member] = shelf
        shelf.members[member] = None
        shelf.slots += member.info.slots
        shelf.places += member.info.driver_places
        member.recount()
        shelf.count(member, 1)
        shelf.put(member, member.usable_level())

    def remove(self, member: Member) -> None:
        shelf = self._shelf_of.pop(member)
        del shelf.members[member]
        del shelf.levels[member.level][member]
        shelf.slots -= member.info.slots
        shelf.places -= member.info.driver_places
        shelf.count(member, -1)
        if not shelf.members:
            del self.by_runtime[member.info.runtime]

    def update(self, member: Member) -> bool:
        """Count a changed member again. True if more is free than before and the member is not blocked."""
        shelf = self._shelf_of[member]
        shelf.count(member, -1)
        gained = member.recount()
        shelf.count(member, 1)
        shelf.move(member)
        return gained and not member.blocked

    def set_blocked(self, member: Member, blocked: bool) -> None:
        """Mark a member as blocked or not, and move its capacity to the matching sums."""
        shelf = self._shelf_of[member]
        shelf.count(member, -1)
        member.blocked = blocked
        shelf.count(member, 1)
        shelf.move(member)

    def promise(self, member: Member, allocation: Allocation) -> None:
        """Account for a newly decided slot, in constant time."""
        shelf = self._shelf_of[member]
        member.promise(allocation)
        shelf.free_slots -= 1
        shelf.move(member)
