"""Decides how many task managers run: which to start, which to stop. Pure; a resource driver carries out the plan.

Each decision follows from what the resource driver lists and what is registered at that moment. The supply itself adds
only time: how long a task manager has been idle or unregistered. So a new leader decides the same after one survey, and
counts the task managers that the previous leader started as coming.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from emberkeep.base.ids import TaskManagerId
from emberkeep.slots.resource_driver import StartedTaskManager, TaskManagerSpec
from emberkeep.slots.supply import Missing, RegisteredSupply, Room, Supply, missing_task_managers, room_of

STARTS_AT_ONCE = 8  # maximum number of starts in one decision
_FAILURES_OVER = 60.0  # seconds over which failed starts are counted


@dataclass(frozen=True)
class SupplyLimits:
    """The limits of the supply. Slots are totals, times are seconds.

    ``max_failures``: failed starts per minute after which starting pauses.
    """

    min_slots: int
    max_slots: int
    idle_timeout: float
    registration_timeout: float
    stop_timeout: float
    retry_interval: float
    max_failures: int


@dataclass(frozen=True)
class SupplyPlan:
    """The next actions of the resource driver and the JobManager.

    ``starts``: number of new task managers. ``revives``: task managers whose process ended while jobs hold something
    there, or may do so. ``stops``: idle ones, which are asked to stop. ``ends``: dead or useless ones, and queued ones
    that no job needs any longer, which the resource driver kills.
    """

    starts: int = 0
    revives: tuple[TaskManagerId, ...] = ()
    stops: tuple[TaskManagerId, ...] = ()
    ends: tuple[TaskManagerId, ...] = ()


class TaskManagerSupply:
    """The supply of task managers. Times are monotonic seconds.

    The supply uses and counts task managers that the resource driver did not start, but never stops them.
    """

    def __init__(self, limits: SupplyLimits, spec: TaskManagerSpec) -> None:
        self._limits = limits
        self._spec = spec
        self._coming: dict[TaskManagerId, float] = {}  # the time since which each has been alive but not registered
        self._idle: dict[TaskManagerId, float] = {}  # the time since which each has been idle, or queued without need
        self._stopping: dict[TaskManagerId, float] = {}  # asked to stop, and when
        self._unanswered: set[TaskManagerId] = set()  # of these, those that may not have received the request
        self._unended: set[TaskManagerId] = set()  # those that the resource driver could not end
        self._failures: deque[float] = deque()
        self._no_start_before = float("-inf")
        self._has_decided = False
        self._had_decided = False  # before the newest plan

    def changes_platform(self, started: Sequence[StartedTaskManager], supply: Supply, now: float) -> bool:
        """True if the plan for this moment starts or ends anything through the resource driver. Decides nothing yet."""
        plan = copy.deepcopy(self).decide(started, supply, now)
        return bool(plan.starts or plan.revives or plan.ends)

    def decide(self, started: Sequence[StartedTaskManager], supply: Supply, now: float) -> SupplyPlan:
        """Return the plan for this moment."""
        standing = {each.id: each for each in supply.standing}
        self._forget_all_but({each.id for each in started})
        inherits = supply.jobs and not self._has_decided
        self._had_decided, self._has_decided = self._has_decided, True
        revives: list[TaskManagerId] = []
        ends: list[TaskManagerId] = []
        for each in started:
            known = standing.get(each.id)
            if not each.alive and known is None and inherits:
                revives.append(each.id)  # it died with the leader before: what jobs hold there is not known yet
            elif not each.alive:
                self._sort_out_dead(each.id, known, now, revives, ends)
            elif known is None and each.queued:
                self._coming[each.id] = now  # its time to register begins when the platform starts it
            elif known is None:
                self._look_at_coming(each.id, now, ends)
            else:
                self._look_at_registered(known, now, ends)
        left = [replace(each, alive=each.alive or each.id in revives) for each in started if each.id not in ends]
        ends += self._not_needed(left, supply, now)
        left = [each for each in left if each.id not in ends]
        return SupplyPlan(
            starts=self._starts(left, supply, now, self._unended.intersection(ends)),
            revives=tuple(revives),
            stops=(*self._asked_again(left, supply), *self._stops(left, supply, now)),
            ends=tuple(ends),
        )

    def interrupted(self) -> None:
        """Note that the newest plan was not carried out as a whole: the next one decides as this one did.

        What died with the leader before is then still started again, and not taken for what nobody needs.
        """
        self._has_decided = self._had_decided

    def start_failed(self, now: float) -> None:
        """Note that a task manager could not be started, or ended before it registered."""
        self._failures.append(now)
        self._no_start_before = now + self._limits.retry_interval

    def ended(self, task_manager: TaskManagerId) -> None:
        """Forget how long a task manager has been idle, stopping or unregistered: the resource driver has stopped it.

        A task manager that is started later with the same id does not inherit these times.
        """
        for times in (self._coming, self._idle, self._stopping):
            times.pop(task_manager, None)
        self._unended.discard(task_manager)

    @property
    def unended(self) -> frozenset[TaskManagerId]:
        """Task managers that the resource driver could not end. Their slots count for the maximum."""
        return frozenset(self._unended)

    def end_failed(self, task_manager: TaskManagerId) -> None:
        """Note that the resource driver could not end a task manager, which may still run."""
        self._unended.add(task_manager)

    def stop_failed(self, task_manager: TaskManagerId) -> None:
        """Note that a task manager could not be asked to stop."""
        self._stopping.pop(task_manager, None)

    def stop_unanswered(self, task_manager: TaskManagerId) -> None:
        """Note that nobody knows whether a task manager has received the request to stop: it must be asked again.

        Until it has answered it gets nothing new, so it must not be left as it is.
        """
        self._unanswered.add(task_manager)

    def _forget_all_but(self, listed: set[TaskManagerId]) -> None:
        self._unended &= listed
        for times in (self._coming, self._idle, self._stopping):
            for key in [key for key in times if key not in listed]:
                del times[key]

    def _sort_out_dead(
        self,
        key: TaskManagerId,
        known: RegisteredSupply | None,
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
            if key not in self._unended:  # it is not another failure each time that it cannot be ended
                self.start_failed(now)
            ends.append(key)

    def _look_at_registered(self, known: RegisteredSupply, now: float, ends: list[TaskManagerId]) -> None:
        self._coming.pop(known.id, None)
        if known.idle:
            self._idle.setdefault(known.id, now)
        else:
            self._idle.pop(known.id, None)
            self._stopping.pop(known.id, None)  # it was restarted since, and is at work again
        if known.id in self._stopping:
            self._end_if_late(known.id, now, ends)

    def _end_if_late(self, key: TaskManagerId, now: float, ends: list[TaskManagerId]) -> None:
        if now - self._stopping[key] >= self._limits.stop_timeout:
            ends.append(key)

    def _not_needed(self, started: Sequence[StartedTaskManager], supply: Supply, now: float) -> list[TaskManagerId]:
        """Return the queued task managers that no job has needed for the idle timeout, the newest ones first."""
        queued = [each.id for each in started if each.queued and each.id not in self._stopping]
        if not queued:
            return []
        others = [each for each in started if each.id not in queued]
        needed = self._missing(others, supply, len(queued)).count
        for key in queued[:needed]:
            self._idle.pop(key, None)
        surplus = queued[needed:]
        for key in surplus:
            self._idle.setdefault(key, now)
        return [key for key in reversed(surplus) if now - self._idle[key] >= self._limits.idle_timeout]

    def _least(self, supply: Supply) -> int:
        """Return the number of slots to keep: at least one while a job has not ended.

        A leader without contact to any task manager never concludes from silence that a driver has ended. Without a
        task manager it would wait forever for a report on the drivers that died with the last one.
        """
        return max(self._limits.min_slots, 1 if supply.jobs else 0)

    def _asked_again(self, started: Sequence[StartedTaskManager], supply: Supply) -> list[TaskManagerId]:
        """Return the registered task managers that may not have received the request to stop."""
        registered = {each.id for each in supply.standing}
        asked, self._unanswered = self._unanswered & self._stopping.keys() & registered, set()
        return [each.id for each in started if each.id in asked]

    def _stops(self, started: Sequence[StartedTaskManager], supply: Supply, now: float) -> list[TaskManagerId]:
        """Return task managers that have been idle for too long, while enough slots remain without them.

        An idle task manager on a blocked node is useless, except the last one while a job waits for the block to end.
        One whose room a gang will use stays until the others that the gang needs are there.
        None is stopped while drivers have to move: an idle one may have been started for them.
        """
        if supply.moving:
            return []
        standing, least = {each.id: each for each in supply.standing}, self._least(supply)
        heard = {each.id for each in supply.standing if not each.away and each.id not in self._stopping}
        usable = sum(standing[key].usable_slots for key in heard)
        waited_on = self._missing(started, supply, 0).waited_on
        stops: list[TaskManagerId] = []
        for each in started:
            idle_since = self._idle.get(each.id)
            if idle_since is None or each.id in self._stopping or each.id in waited_on:
                continue
            if now - idle_since < self._limits.idle_timeout:
                continue
            left = usable - standing[each.id].usable_slots
            of_use = standing[each.id].usable_slots > 0
            if left >= least if of_use else not supply.jobs or heard - {each.id}:
                usable = left
                heard.discard(each.id)
                self._stopping[each.id] = now
                stops.append(each.id)
        return stops

    def _starts(
        self, started: Sequence[StartedTaskManager], supply: Supply, now: float, unended: AbstractSet[TaskManagerId]
    ) -> int:
        if not self._may_start(now):
            return 0
        registered = {each.id for each in supply.standing}
        unregistered = sum(each.alive and each.id not in registered for each in started) + len(unended - registered)
        counted = _counted(supply, unended)
        total = counted + unregistered * self._spec.slots
        most = max(0, self._limits.max_slots - total) // max(1, self._spec.slots)
        return self._missing(started, supply, min(STARTS_AT_ONCE, most)).count

    def _missing(self, started: Sequence[StartedTaskManager], supply: Supply, most: int) -> Missing:
        """Return what is needed besides the registered and ``started`` ones: at most ``most`` task managers."""
        registered = {each.id for each in supply.standing}
        expected = [each.id for each in started if each.alive and each.id not in registered | self._stopping.keys()]
        coming = [room_of(self._spec) for _ in expected]
        staying = [each for each in supply.standing if each.id not in self._stopping]
        size = max(1, self._spec.slots)
        usable = sum(each.usable_slots for each in staying) + len(coming) * self._spec.slots
        for_minimum = -(-max(0, self._least(supply) - usable) // size)
        spare: list[Room] = [each.spare for each in staying if each.spare is not None]
        asked = missing_task_managers(
            supply.demand,
            [*spare, *coming],
            self._spec,
            most,
            free={each.id: each.free for each in staying if each.free is not None},
            limit=max(0, self._limits.max_slots - _counted(supply)) // size - len(expected),
        )
        return replace(asked, count=min(most, max(asked.count, for_minimum)))

    def _may_start(self, now: float) -> bool:
        while self._failures and now - self._failures[0] > _FAILURES_OVER:
            self._failures.popleft()
        return now >= self._no_start_before and len(self._failures) < self._limits.max_failures


def _counted(supply: Supply, unended: AbstractSet[TaskManagerId] = frozenset()) -> int:
    """Return the slots of registered task managers that count for the maximum.

    An idle one on a blocked node ends as soon as another one is registered, so it does not count, unless it is one of
    ``unended``.
    """
    return sum(each.slots for each in supply.standing if each.id in unended or not (each.blocked and each.idle))
