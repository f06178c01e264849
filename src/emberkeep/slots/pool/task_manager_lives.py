"""The task manager instances on which one attempt holds slots, and the last contact with each. Part of the SlotPool."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from emberkeep.base.bounded import remember
from emberkeep.base.ids import AllocationId, InstanceId, TaskManagerId
from emberkeep.slots.model import TaskManagerInfo
from emberkeep.slots.pool.events import BeatAnswered
from emberkeep.slots.pool.held_slot import HeldSlot

STRAYS = 1000  # maximum number of task managers that get heartbeats only so that they free unused slots
REMEMBERED = 10_000  # instances remembered after they ended


@dataclass
class TaskManagerContact:
    """An instance of a task manager that holds slots of this attempt, and the time of the last contact with it."""

    info: TaskManagerInfo
    heard_at: float


class TaskManagerLives:
    """The task manager instances that one attempt watches, and those that a later instance has replaced.

    A task manager has one instance at a time, but messages of successive instances may arrive out of order. ``late``:
    seconds after which no message of an ended instance can arrive. So an instance that sends a message later than that
    is alive, even if this attempt took another instance for its successor.

    ``views``: instances on which this attempt holds slots. ``strays``: instances that may keep slots for this attempt
    although the attempt does not hold them.
    """

    def __init__(self, late: float) -> None:
        self._late = late
        self.views: dict[InstanceId, TaskManagerContact] = {}
        self.strays: dict[InstanceId, TaskManagerInfo] = {}
        self._over: dict[InstanceId, float] = {}  # when a later instance took over from each; oldest first

    def heard(self, info: TaskManagerInfo, now: float) -> None:
        self.views.setdefault(info.instance, TaskManagerContact(info, now)).heard_at = now

    def heard_again(self, instance: InstanceId, now: float) -> None:
        """Note contact with an instance, if it holds slots."""
        view = self.views.get(instance)
        if view is not None:
            view.heard_at = now

    def silence(self, instance: InstanceId, now: float) -> float:
        """Return the seconds since the last contact with this instance, which must hold slots."""
        return now - self.views[instance].heard_at

    def is_over(self, instance: InstanceId, now: float) -> bool:
        """True if a later instance took over less than ``late`` seconds ago, so messages of ``instance`` are late."""
        over_at = self._over.get(instance)
        return over_at is not None and now - over_at < self._late

    def end(self, instance: InstanceId, now: float) -> None:
        """Note that a later instance has taken over from this one."""
        self._over.pop(instance, None)
        remember(self._over, instance, now, REMEMBERED)

    def forget(self, instance: InstanceId) -> None:
        """Stop watching an instance that no longer holds a slot."""
        self.views.pop(instance, None)

    def stray(self, info: TaskManagerInfo) -> None:
        """Watch an instance that may still keep a slot which this attempt has released. Heartbeats free that slot."""
        self.strays[info.instance] = info
        while len(self.strays) > STRAYS:
            del self.strays[next(iter(self.strays))]

    def review_strays(self, event: BeatAnswered, held: Collection[AllocationId]) -> None:
        """Forget a stray that has replied if it holds nothing beyond ``held``, or if another instance has replied."""
        for info in list(self.strays.values()):
            restarted = info.instance != event.instance
            if info.id == event.task_manager and (restarted or all(key in held for key in event.allocations)):
                del self.strays[info.instance]

    def to_beat(self, held: Mapping[AllocationId, HeldSlot]) -> list[tuple[TaskManagerInfo, tuple[AllocationId, ...]]]:
        """Return the instances that get a heartbeat, each with the slots held on all instances of its task manager.

        The running instance replies for the earlier ones, and frees the slots that a heartbeat does not name.
        """
        by_id: dict[TaskManagerId, list[AllocationId]] = {}
        for key, slot in held.items():
            by_id.setdefault(slot.task_manager.id, []).append(key)
        infos = {**self.strays, **{instance: view.info for instance, view in self.views.items()}}
        return [(info, tuple(by_id.get(info.id, ()))) for info in infos.values()]
