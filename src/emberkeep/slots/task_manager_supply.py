"""How many task managers there are to be: which to start, which to end. Pure; a driver carries it out.

Each decision is made from what the driver lists and what is registered at that moment. What it adds is only time: since
when one has been idle, or has not registered. So a new leader decides the same after one look, and counts what the last
one started as coming.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from emberkeep.base.ids import TaskManagerId
from emberkeep.slots.resource_driver import StartedTaskManager, TaskManagerSpec
from emberkeep.slots.supply import Room, Standing, Supply, missing_task_managers, room_of

STARTS_AT_ONCE = 8  # in one decision
_FAILURES_OVER = 60.0  # seconds over which failed starts are counted


@dataclass(frozen=True)
class SupplyLimits:
    """Slots in total, seconds; ``max_failures``: starts per minute that may fail before there is a pause."""

    min_slots: int
    max_slots: int
    idle_timeout: float
    registration_timeout: float
    stop_timeout: float
    retry_interval: float
    max_failures: int


@dataclass(frozen=True)
class SupplyPlan:
    """``starts``: so many new ones. ``revives``: whose process has ended while jobs hold something there. ``stops``:
    idle ones, which are told to end. ``ends``: of no use any more, or gone."""

    starts: int = 0
    revives: tuple[TaskManagerId, ...] = ()
    stops: tuple[TaskManagerId, ...] = ()
    ends: tuple[TaskManagerId, ...] = ()


class TaskManagerSupply:
    """Task managers that the driver has not started are used, and counted, and left alone. Monotonic seconds."""

    def __init__(self, limits: SupplyLimits, spec: TaskManagerSpec) -> None:
        self._limits = limits
        self._spec = spec
        self._coming: dict[TaskManagerId, float] = {}  # since when: alive, and not registered
        self._idle: dict[TaskManagerId, float] = {}  # since when
        self._stopping: dict[TaskManagerId, float] = {}  # told to end; since when
        self._failures: deque[float] = deque()
        self._no_start_before = float("-inf")

    def decide(self, started: Sequence[StartedTaskManager], supply: Supply, now: float) -> SupplyPlan:
        """What to do now."""
        standing = {each.id: each for each in supply.standing}
        self._forget_all_but({each.id for each in started})
        revives: list[TaskManagerId] = []
        ends: list[TaskManagerId] = []
        for each in started:
            known = standing.get(each.id)
            if not each.alive:
                self._sort_out_dead(each.id, known, now, revives, ends)
            elif known is None:
                self._look_at_coming(each.id, now, ends)
            else:
                self._look_at_registered(known, now, ends)
        left = [each for each in started if each.id not in ends]
        return SupplyPlan(
            starts=self._starts(left, supply, now),
            revives=tuple(revives),
            stops=tuple(self._stops(left, supply, now)),
            ends=tuple(ends),
        )

    def start_failed(self, now: float) -> None:
        """A task manager could not be started, or ended before it had registered."""
        self._failures.append(now)
        self._no_start_before = now + self._limits.retry_interval

    def ended(self, task_manager: TaskManagerId) -> None:
        """It was ended and is forgotten: who comes under its id is another one."""
        for times in (self._coming, self._idle, self._stopping):
            times.pop(task_manager, None)

    def stop_failed(self, task_manager: TaskManagerId) -> None:
        """It could not be told to end."""
        self._stopping.pop(task_manager, None)

    def _forget_all_but(self, listed: set[TaskManagerId]) -> None:
        for times in (self._coming, self._idle, self._stopping):
            for key in [key for key in times if key not in listed]:
                del times[key]

    def _sort_out_dead(
        self,
        key: TaskManagerId,
        known: Standing | None,
        now: float,
        revives: list[TaskManagerId],
        ends: list[TaskManagerId],
    ) -> None:
        if self._coming.pop(key, None) is not None:
            self.start_failed(now)
        if known is None or known.idle or key in self._stopping:
            ends.append(key)
        elif self._may_start(now):
            revives.append(key)

    def _look_at_coming(self, key: TaskManagerId, now: float, ends: list[TaskManagerId]) -> None:
        self._idle.pop(key, None)
        if key in self._stopping:
            self._end_if_late(key, now, ends)
        elif now - self._coming.setdefault(key, now) >= self._limits.registration_timeout:
            self.start_failed(now)
            ends.append(key)

    def _look_at_registered(self, known: Standing, now: float, ends: list[TaskManagerId]) -> None:
        self._coming.pop(known.id, None)
        if known.idle:
            self._idle.setdefault(known.id, now)
        else:
            self._idle.pop(known.id, None)
        if known.id in self._stopping:
            self._end_if_late(known.id, now, ends)

    def _end_if_late(self, key: TaskManagerId, now: float, ends: list[TaskManagerId]) -> None:
        if now - self._stopping[key] >= self._limits.stop_timeout:
            ends.append(key)

    def _least(self, supply: Supply) -> int:
        """Slots that are kept. While a job has not ended there is somebody: a leader that hears nobody at all believes
        no silence, so it would wait for the word of drivers that died with the last task manager."""
        return max(self._limits.min_slots, 1 if supply.jobs else 0)

    def _stops(self, started: Sequence[StartedTaskManager], supply: Supply, now: float) -> list[TaskManagerId]:
        """Those that have been idle for long, as far as enough are left. On a blocked node none is of use, unless it is
        the last one and a job waits for the end of the block."""
        standing, least = {each.id: each for each in supply.standing}, self._least(supply)
        heard = {each.id for each in supply.standing if not each.away and each.id not in self._stopping}
        usable = sum(standing[key].usable_slots for key in heard)
        stops: list[TaskManagerId] = []
        for each in started:
            idle_since = self._idle.get(each.id)
            if idle_since is None or each.id in self._stopping or now - idle_since < self._limits.idle_timeout:
                continue
            left = usable - standing[each.id].usable_slots
            of_use = standing[each.id].usable_slots > 0
            if left >= least if of_use else not supply.jobs or heard - {each.id}:
                usable = left
                heard.discard(each.id)
                self._stopping[each.id] = now
                stops.append(each.id)
        return stops

    def _starts(self, started: Sequence[StartedTaskManager], supply: Supply, now: float) -> int:
        if not self._may_start(now):
            return 0
        registered = {each.id: each for each in supply.standing}
        unregistered = [each.id for each in started if each.alive and each.id not in registered]
        coming = [room_of(self._spec) for key in unregistered if key not in self._stopping]
        staying = [each for each in supply.standing if each.id not in self._stopping]
        usable = sum(each.usable_slots for each in staying) + len(coming) * self._spec.slots
        # One on a blocked node that does nothing ends as soon as another one is there.
        counted = sum(each.slots for each in supply.standing if not (each.blocked and each.idle))
        total = counted + len(unregistered) * self._spec.slots
        slots = max(1, self._spec.slots)
        most = min(STARTS_AT_ONCE, max(0, self._limits.max_slots - total) // slots)
        spare: list[Room] = [each.spare for each in staying if each.spare is not None]
        asked = missing_task_managers(supply.demand, [*spare, *coming], self._spec, most)
        for_minimum = -(-max(0, self._least(supply) - usable) // slots)
        return min(most, max(asked, for_minimum))

    def _may_start(self, now: float) -> bool:
        while self._failures and now - self._failures[0] > _FAILURES_OVER:
            self._failures.popleft()
        return now >= self._no_start_before and len(self._failures) < self._limits.max_failures
