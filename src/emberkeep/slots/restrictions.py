"""Closes task managers to new work: by the blocklist, while their disk is full, before they stop, and for two seconds
after a refusal.

Part of the SlotManager. Running work stays on a closed task manager, unless the task manager is evacuated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.slots.blocked import BlocklistView, NothingBlocked
from emberkeep.slots.custom.amounts import fit
from emberkeep.slots.job_accounts import JobAccounts
from emberkeep.slots.ledger import BlockState, DriverNeed, DriverUse, EndingState, Member
from emberkeep.slots.matching import takes_drivers
from emberkeep.slots.model import TaskManagerInfo
from emberkeep.slots.shelves import Shelves

AVOIDED_FOR = 2.0  # seconds without new work for a task manager that refused or was unreachable
_SMALL_DISK = 20  # of a small disk, only the 20th part has to be free
_ROOM_AGAIN = 1.25  # so many times as much must be free until a full disk counts as one with room


class Restrictions:
    """Closes and reopens task managers. All times are monotonic seconds.

    ``members``, ``shelves`` and ``jobs`` belong to the SlotManager. ``min_free_disk_mb``: a disk with less free space
    counts as full; 0: none does. ``vacant_timeout``: how long jobs wait for a blocked place without a task
    manager; 0: for as long as it is blocked.
    """

    def __init__(
        self,
        members: Mapping[TaskManagerId, Member],
        shelves: Shelves,
        jobs: JobAccounts,
        *,
        min_free_disk_mb: int,
        vacant_timeout: float,
    ) -> None:
        self._min_free_disk_mb = min_free_disk_mb
        self._vacant_timeout = vacant_timeout
        self.blocked: BlocklistView = NothingBlocked()
        self._members = members
        self._shelves = shelves
        self._jobs = jobs
        self._avoided: dict[Member, float] = {}  # until when, oldest first
        self._vacant: tuple[str, ...] = ()
        self._vacant_at = 0  # version of the shelves from which ``_vacant`` was computed
        self._given_up_at: dict[str, float] = {}  # when jobs wait no longer for a vacant place
        self._seen_at = 0.0  # the newest time that is known

    # --- blocklist ----------------------------------------------------------------------------------------------------

    def block(self, places: BlocklistView) -> None:
        """Follow a new blocklist: place nothing new on the task managers that ``places`` blocks.

        Withdraw pending slots there, and driver places for which no driver was ordered yet. Task managers that are no
        longer blocked get work again.
        """
        self.blocked = places
        self._vacant_at = -1
        for member in self._members.values():
            before, block = member.block, self.block_of(member.info)
            if block is before:
                continue
            self._shelves.set_block(member, block)
            if before is BlockState.NONE:
                self._jobs.withdraw_unordered_on(member)

    def block_of(self, info: TaskManagerInfo) -> BlockState:
        """Return what the blocklist says about a task manager."""
        where = (info.id, info.node_id)
        if self.blocked.is_evacuated(*where):
            return BlockState.EVACUATED
        return BlockState.BLOCKED if self.blocked.is_blocked(*where) else BlockState.NONE

    def vacant(self) -> tuple[str, ...]:
        """Return the blocked places without a task manager that sends heartbeats."""
        if self._vacant_at != self._shelves.version:
            present = ((member.info.id, member.info.node_id) for member in self._shelves.members)
            self._vacant, self._vacant_at = self.blocked.vacant(present), self._shelves.version
        return self._vacant

    def awaits_vacant(self) -> bool:
        """True if jobs wait for one of the vacant places: its node may come back, and be unblocked."""
        return any(self._seen_at < self._given_up_at.get(place, math.inf) for place in self.vacant())

    def _note_vacant(self, now: float) -> None:
        self._seen_at = now
        if self._vacant_timeout:
            until = now + self._vacant_timeout
            self._given_up_at = {place: self._given_up_at.get(place, until) for place in self.vacant()}

    # --- full disks ---------------------------------------------------------------------------------------------------

    def take_disk(self, task_manager: TaskManagerId, free_mb: int, total_mb: int) -> bool:
        """Place nothing new on a task manager while its disk is full, in MiB as it reports. Return True if that is new.

        Slots and driver places that were decided before stay: their processes may still find room. ``total_mb``: 0 if
        it is unknown; such a disk is never full.
        """
        member = self._members[task_manager]
        least = min(self._min_free_disk_mb, total_mb // _SMALL_DISK)
        full = free_mb < least * (_ROOM_AGAIN if member.disk_full else 1)
        if full is member.disk_full:
            return False
        self._shelves.set_disk_full(member, full)
        if full:
            self._jobs.close_to_claims(member)
        return True

    # --- before the end of a task manager -----------------------------------------------------------------------------

    def retire(self, task_manager: TaskManagerId) -> bool:
        """Place nothing new on a task manager that will be asked to stop. Return False if it is busy or unknown."""
        member = self._members.get(task_manager)
        if member is None or not member.is_idle:
            return False
        if member.ending is EndingState.STAYS:
            member.ending = EndingState.RETIRING
            self._shelves.update(member)
        return True

    def is_retiring(self, task_manager: TaskManagerId) -> bool:
        """True if a task manager was asked to stop and has not answered: it may have received the request."""
        member = self._members.get(task_manager)
        return member is not None and member.ending is EndingState.RETIRING

    def recall(self, task_manager: TaskManagerId) -> None:
        """Use a task manager as before, because it certainly did not receive the request to stop."""
        member = self._members.get(task_manager)
        if member is not None and member.ending is EndingState.RETIRING:
            member.ending = EndingState.STAYS
            self._shelves.reopen(member)

    def take_leaving(self, task_manager: TaskManagerId, *, drains: bool) -> None:
        """Place nothing new on a task manager that reports that it is about to stop.

        ``drains``: True if the running work moves elsewhere first.
        """
        member = self._members[task_manager]
        if not member.is_leaving:
            member.ending = EndingState.LEAVING
            self._jobs.withdraw_unordered_on(member)
            self._shelves.update(member)
        if drains:
            member.ending = EndingState.DRAINING

    def draining(self) -> frozenset[TaskManagerId]:
        """Return the task managers that are about to stop and whose work moves elsewhere first."""
        return frozenset(key for key, member in self._members.items() if member.is_draining)

    def movable(self) -> frozenset[JobId]:
        """Return the jobs whose driver is on a draining task manager and would fit on another one.

        Memory that the job's own slots use on the other task manager counts as free.
        """
        return frozenset(
            driver.job_id
            for member in self._members.values()
            if member.is_draining
            for driver in member.drivers
            if driver.live and self._has_room(driver, member)
        )

    def moving(self) -> tuple[DriverNeed, ...] | None:
        """Return the needs of the drivers on draining task managers that fit on no other one now.

        None if no driver is on a draining task manager.
        """
        drained = [member for member in self._members.values() if member.is_draining]
        live = [(driver, member) for member in drained for driver in member.drivers if driver.live]
        if not live:
            return None
        return tuple(
            DriverNeed(memory_mb=driver.memory_mb, python=member.info.runtime.python, custom=driver.custom)
            for driver, member in live
            if not self._has_room(driver, member)
        )

    def _has_room(self, driver: DriverUse, home: Member) -> bool:
        for member in self._members.values():
            if takes_drivers(member) and member.info.runtime.python == home.info.runtime.python:
                slots = (*member.allocations.values(), *member.kept.values())
                own = (one.profile.memory_mb for one in slots if one.job_id == driver.job_id)
                enough = fit(driver.custom, member.free_custom)
                if enough and member.free_memory + sum(own) >= driver.memory_mb:
                    return True
        return False

    # --- after a refusal ----------------------------------------------------------------------------------------------

    def avoid(self, member: Member, now: float) -> None:
        """Place nothing new for AVOIDED_FOR seconds on a task manager that refused a slot or was unreachable."""
        self._avoided.pop(member, None)
        self._avoided[member] = now + AVOIDED_FOR
        member.avoided = True
        self._shelves.update(member)

    def forget(self, member: Member) -> None:
        """Stop avoiding a task manager that is away or was removed."""
        self._avoided.pop(member, None)
        member.avoided = False

    def expire(self, now: float) -> None:
        """Stop avoiding task managers that were avoided, and waiting for places that were vacant, for long enough."""
        self._note_vacant(now)
        while self._avoided:
            member, until = next(iter(self._avoided.items()))
            if now < until:
                break
            self.forget(member)
            self._shelves.reopen(member)
