"""One round of matching: assign free slots to jobs and free driver places to waiting drivers.

Slots are shared max-min fairly among jobs of equal priority: the next slot goes to the job that holds the fewest. Each
job gets a first slot before any job gets a second one. ``priorities.precedence`` has the whole order.

A job's slots go where its local state is. Without local state they spread, in this order of preference: the freest task
manager where the job holds nothing and its current attempt has lost nothing; the one where it holds nothing and lost
slots the longest time ago; the one where it holds the fewest, ties going to the freest. So a job whose executors fail
on one task manager, and which holds slots nowhere else, tries all others before it returns there.

Nothing becomes free within a round, so a size that did not fit once is not tried again. The cost of a round per
assigned slot is therefore roughly constant, however many task managers there are.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from emberkeep.slots.custom.amounts import fit
from emberkeep.slots.ledger import DriverNeed, JobAccount, Member, Want
from emberkeep.slots.locality import Homes, StateIndex
from emberkeep.slots.model import ResourceProfile
from emberkeep.slots.namespace_quotas import NamespaceRoom
from emberkeep.slots.priorities.gangs import room_now, room_when_empty
from emberkeep.slots.priorities.precedence import Rank
from emberkeep.slots.shelves import Shelf, Shelves


class _ShelfWalk:
    """One shelf's levels as lists that only grow during a round, while members move to lower levels."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.top = len(shelf.levels) - 1
        self.lists: dict[int, list[Member]] = {}
        self.heads: dict[int, int] = {}  # index of the first member that may still be on the level
        self.exhausted: set[ResourceProfile] = set()

    def at(self, level: int) -> list[Member]:
        members = self.lists.get(level)
        if members is None:
            members = self.lists[level] = list(self.shelf.levels[level])
            self.heads[level] = 0
        return members

    def moved(self, member: Member) -> None:
        members = self.lists.get(member.level)
        if members is not None:
            members.append(member)


@dataclass(eq=False)
class _Wish:
    """One requirement of one job in this round, with the progress of the search for its slots."""

    job: JobAccount
    want: Want
    walk: _ShelfWalk
    homes: Homes
    level: int
    position: int = 0
    touched: list[tuple[int, int, int, Member]] | None = None  # heap of the task managers where the job holds slots

    @property
    def profile(self) -> ResourceProfile:
        return self.want.requirement.profile

    def find(self) -> Member | None:
        profile = self.profile
        if profile in self.walk.exhausted:
            return None
        member = (
            self.homes.best(profile)
            or self._untouched(profile)
            or self._left_longest(profile)
            or self._least_touched(profile)
        )
        if member is None:
            self.walk.exhausted.add(profile)
        return member

    def _untouched(self, profile: ResourceProfile) -> Member | None:
        """Return the freest fitting task manager where the job holds nothing and has lost nothing, or None."""
        walk, spread, left = self.walk, self.job.spread, self.job.left
        level, position = self.level, self.position
        while level > 0:
            members, head = walk.at(level), walk.heads[level]
            while head < len(members) and members[head].level != level:
                head += 1
            walk.heads[level] = head
            for index in range(max(position, head), len(members)):
                member = members[index]
                untouched = member not in spread and member not in left
                if untouched and member.level == level and member.fits(profile):
                    self.level, self.position = level, index
                    return member
            level, position = level - 1, 0
        self.level = 0
        return None

    def _left_longest(self, profile: ResourceProfile) -> Member | None:
        """Return the fitting task manager where the job holds nothing and its last loss is longest ago, or None."""
        members, spread = self.walk.shelf.members, self.job.spread
        able = (m for m in self.job.left if m in members and m not in spread and m.level > 0 and m.fits(profile))
        return next(able, None)

    def _least_touched(self, profile: ResourceProfile) -> Member | None:
        """Return the fitting task manager where the job holds the fewest slots, or None; ties go to the freest one."""
        job = self.job
        if self.touched is None:
            members = self.walk.shelf.members
            self.touched = [
                (count, -member.level, member.ordinal, member)
                for member, count in job.spread.items()
                if member.level > 0 and member in members
            ]
            heapq.heapify(self.touched)
        heap = self.touched
        while heap:
            count, free, ordinal, member = heap[0]
            if member.level == 0 or not member.fits(profile):
                heapq.heappop(heap)
                continue
            if count == job.spread[member] and -free == member.level:
                return member
            heapq.heapreplace(heap, (job.spread[member], -member.level, ordinal, member))
        return None


class SlotRound:
    """Chooses task managers for slots until nothing more fits.

    ``room``: what the namespaces of the jobs may still get. ``give(job, member, profile)`` carries out each decision.
    It must update the accounts of the member and the job, and the shelf, before it returns. The round itself counts
    down ``wants`` and ``room``.
    """

    def __init__(
        self,
        shelves: Shelves,
        state: StateIndex,
        room: NamespaceRoom,
        give: Callable[[JobAccount, Member, ResourceProfile], None],
    ) -> None:
        self._state = state
        self._room = room
        self._walks = {runtime: _ShelfWalk(shelf) for runtime, shelf in shelves.by_runtime.items()}
        self._give = give

    def run(
        self,
        jobs: Iterable[JobAccount],
        rank: Callable[[JobAccount], Rank],
        keep_for: Callable[[JobAccount], bool] = lambda _: False,
    ) -> None:
        """Give slots to ``jobs``, each time to the one with the lowest ``rank`` at that time. Ranks only rise.

        ``keep_for``: called for a gang that would fit on empty task managers and does not fit now. If it returns True,
        the round ends, so that what is free stays free.
        """
        queue = [(rank(job), self._wishes(job)) for job in jobs]
        queue = [entry for entry in queue if entry[1]]
        heapq.heapify(queue)
        while queue:
            known, wishes = queue[0]
            job = wishes[0].job
            if (now := rank(job)) != known:  # another job of its namespace has got slots
                heapq.heapreplace(queue, (now, wishes))
                continue
            if job.gang and not job.held:
                heapq.heappop(queue)
                if not self._serve_gang(wishes) and self._would_fit(wishes) and keep_for(job):
                    return
            elif self._serve(wishes):
                heapq.heapreplace(queue, (rank(job), wishes))
            else:
                heapq.heappop(queue)

    def _wishes(self, job: JobAccount) -> list[_Wish]:
        """Return the job's wishes in reverse order, because the last one is served first."""
        wishes = []
        for want in reversed(job.wants):
            walk = self._walks.get(want.requirement.runtime)
            if walk is not None:
                homes = Homes(job, self._state.of(job.job_id), walk.shelf.members)
                wishes.append(_Wish(job, want, walk, homes, walk.top))
        return wishes

    def _serve_gang(self, wishes: list[_Wish]) -> bool:
        """Assign all slots that a gang needs, or none. Return True if all were assigned."""
        job = wishes[0].job
        missing = sum(wish.want.missing for wish in wishes)
        if len(wishes) < len(job.wants) or self._room.left(job, missing) < missing:
            return False
        if any(room_now(wish.walk.shelf.members, wish.profile) < wish.want.missing for wish in wishes):
            return False
        while self._serve(wishes):
            pass
        return True

    def _would_fit(self, wishes: list[_Wish]) -> bool:
        """True if a gang would have room on empty task managers, and in the quota of its namespace."""
        missing = sum(wish.want.missing for wish in wishes)
        roomy = all(room_when_empty(wish.walk.shelf.members, wish.profile) >= wish.want.missing for wish in wishes)
        return roomy and self._room.left(wishes[0].job, missing) >= missing

    def _serve(self, wishes: list[_Wish]) -> bool:
        """Assign one slot. Return False if the job has all its slots, or if its size or quota allows no further one."""
        while wishes and self._room.left(wishes[-1].job):
            wish = wishes[-1]
            member = wish.find() if wish.want.missing else None
            if member is None:
                wishes.pop()
                continue
            level = member.level
            self._give(wish.job, member, wish.profile)
            self._room.take(wish.job)
            wish.want.missing -= 1
            if member.level != level:
                wish.walk.moved(member)
            return True
        return False


class PlaceRound:
    """Chooses a task manager for each driver, in this order of preference:

    - after a failed start, the freest task manager on a node where no start failed
    - the task manager where the job's reserved standby is ready
    - the task manager with state of the job where the job's last driver ran
    - the task manager with the most state of the job
    - the freest task manager with a warm driver that is ready
    - the task manager with the most free memory
    """

    def __init__(self, members: Iterable[Member], state: StateIndex) -> None:
        self._state = state
        self._heaps: dict[str, list[tuple[int, int, Member]]] = {}
        self._warm: list[Member] = []
        for member in members:
            self.add(member)

    def add(self, member: Member) -> None:
        """Add a task manager, or add it again because it has more room than before."""
        if takes_drivers(member):
            heapq.heappush(self._heaps.setdefault(member.info.runtime.python, []), _room(member))
            if member.standby_drivers:
                self._warm.append(member)

    @property
    def is_empty(self) -> bool:
        """True if no task manager can take a driver."""
        return not any(self._heaps.values())

    def choose(self, job: JobAccount, need: DriverNeed) -> Member | None:
        """Return the best fit, or None."""
        return (
            self._elsewhere(need)
            or self._reserved(job, need)
            or self._home(job, need)
            or self._freest_warm(need)
            or self._freest(need)
        )

    def _elsewhere(self, need: DriverNeed) -> Member | None:
        """Return the freest fitting task manager that is on none of the shunned nodes, or None."""
        if not need.shunned:
            return None
        members = (member for heap in self._heaps.values() for _, _, member in heap)
        able = [_room(member) for member in members if _fits(member, need) and member.info.node_id not in need.shunned]
        return min(able)[-1] if able else None

    def _reserved(self, job: JobAccount, need: DriverNeed) -> Member | None:
        """Return the task manager that keeps the job's reserved standby if that is ready, else None."""
        member = job.standby_on
        if member is None or member.reserved_standbys.get(job.job_id) != "" or not _fits(member, need):
            return None
        return member

    def _home(self, job: JobAccount, need: DriverNeed) -> Member | None:
        able = [
            (member.info.id == job.last_place, size, -member.ordinal, member)
            for member, size in self._state.of(job.job_id).items()
            if _fits(member, need)
        ]
        return max(able)[-1] if able else None

    def _freest_warm(self, need: DriverNeed) -> Member | None:
        """Return the freest fitting task manager with more warm drivers than drivers on their way to it, or None."""
        able = [
            _room(member)
            for member in self._warm
            if member.standby_drivers > len(member.reservations) and _fits(member, need)
        ]
        return min(able)[-1] if able else None

    def _freest(self, need: DriverNeed) -> Member | None:
        if need.custom:
            members = (member for heap in self._heaps.values() for _, _, member in heap)
            return min((_room(member) for member in members if _fits(member, need)), default=(0, 0, None))[-1]
        best: list[tuple[int, int, Member]] | None = None
        for python, heap in self._heaps.items():
            _settle(heap)
            wanted = need.python in ("", python) and heap and -heap[0][0] >= need.memory_mb
            if wanted and (best is None or heap[0] < best[0]):
                best = heap
        return best[0][2] if best else None


def takes_drivers(member: Member) -> bool:
    """True if a driver may be placed on this task manager, provided that there is enough memory."""
    return member.free_places > 0 and member.is_open and member.claimed_by is None


def _fits(member: Member, need: DriverNeed) -> bool:
    return takes_drivers(member) and has_place(member, need) and need.python in ("", member.info.runtime.python)


def has_place(member: Member, need: DriverNeed) -> bool:
    """True if a driver place, and the memory and custom resources for it, are free on this task manager."""
    return member.free_places > 0 and member.free_memory >= need.memory_mb and fit(need.custom, member.free_custom)


def _settle(heap: list[tuple[int, int, Member]]) -> None:
    """Bring the best member to the top: since insertion, members may have lost room or been closed to drivers."""
    while heap:
        member = heap[0][2]
        if not takes_drivers(member):
            heapq.heappop(heap)
        elif heap[0] != _room(member):
            heapq.heapreplace(heap, _room(member))
        else:
            return


def _room(member: Member) -> tuple[int, int, Member]:
    return (-member.free_memory, member.ordinal, member)
