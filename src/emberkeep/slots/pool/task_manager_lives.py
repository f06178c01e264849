"""The task managers that one attempt of a job has slots on, as part of its SlotPool: which life of each, heard when."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from emberkeep.base.ids import AllocationId, InstanceId, TaskManagerId
from emberkeep.slots.model import TaskManagerInfo
from emberkeep.slots.pool.events import BeatAnswered, HeldSlot, TaskManagerView

STRAYS = 1000  # task managers that are watched for, so that slots which nobody uses are not held for ever
REMEMBERED = 10_000  # lives that are over


class TaskManagerLives:
    """``views``: lives that hold slots. ``strays``: lives that may hold slots which are not held here any more.

    Lives follow each other, but their messages may not come in that order. ``late``: seconds after which a message of
    a life that is over cannot come any more. Who speaks then is alive, whatever was taken for its successor.
    """

    def __init__(self, late: float) -> None:
        self._late = late
        self.views: dict[InstanceId, TaskManagerView] = {}
        self.strays: dict[InstanceId, TaskManagerInfo] = {}
        self._over: dict[InstanceId, float] = {}  # when a later life had taken over from each; oldest first

    def heard(self, info: TaskManagerInfo, now: float) -> None:
        self.views.setdefault(info.instance, TaskManagerView(info, now)).heard_at = now

    def heard_again(self, instance: InstanceId, now: float) -> None:
        """As ``heard``, where the life holds slots; else nothing."""
        view = self.views.get(instance)
        if view is not None:
            view.heard_at = now

    def silence(self, instance: InstanceId, now: float) -> float:
        """Seconds since this life, which holds slots, was heard."""
        return now - self.views[instance].heard_at

    def is_over(self, instance: InstanceId, now: float) -> bool:
        """Whether a later life has taken over a moment ago: what this one says comes late."""
        over_at = self._over.get(instance)
        return over_at is not None and now - over_at < self._late

    def end(self, instance: InstanceId | None, now: float) -> None:
        """A later life has taken over from this one."""
        if instance is not None:
            self._over.pop(instance, None)
            remember(self._over, instance, now, REMEMBERED)

    def forget(self, instance: InstanceId) -> None:
        """It holds no slot any more."""
        self.views.pop(instance, None)

    def stray(self, info: TaskManagerInfo) -> None:
        """It may hold on to a slot that was given back or given up: it is told so when it can be reached."""
        self.strays[info.instance] = info
        while len(self.strays) > STRAYS:
            del self.strays[next(iter(self.strays))]

    def review_strays(self, event: BeatAnswered, held: Collection[AllocationId]) -> None:
        """A stray has answered: forget it once it holds nothing that is not held here, or was started anew."""
        for info in list(self.strays.values()):
            anew = info.instance != event.instance
            if info.id == event.task_manager and (anew or all(key in held for key in event.allocations)):
                del self.strays[info.instance]

    def to_beat(self, held: Mapping[AllocationId, HeldSlot]) -> list[tuple[TaskManagerInfo, tuple[AllocationId, ...]]]:
        """Whom to tell which slots are held there. Each life is told of the slots of all lives of its task manager: the
        one that runs answers for those before it, and would free what it is not told of."""
        by_id: dict[TaskManagerId, list[AllocationId]] = {}
        for key, slot in held.items():
            by_id.setdefault(slot.task_manager.id, []).append(key)
        infos = {**self.strays, **{instance: view.info for instance, view in self.views.items()}}
        return [(info, tuple(by_id.get(info.id, ()))) for info in infos.values()]


def remember(known: dict[Any, Any], key: str, value: object, most: int) -> None:
    """Add an entry; the oldest ones are forgotten beyond ``most``."""
    known[key] = value
    while len(known) > most:
        del known[next(iter(known))]
