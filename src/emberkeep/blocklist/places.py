"""Answer the most frequent question, whether new work may go to a place, in constant time for any list."""

from __future__ import annotations

from collections.abc import Iterable

from emberkeep.base.ids import TaskManagerId
from emberkeep.blocklist.model import BlockAction, Blocked, EvacuatedDrivers, Place, PlaceKind

_EVACUATE = BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS


class BlockedPlaces:
    """Immutable view of a blocklist. A task manager counts as blocked if it, or the node that it runs on, is listed."""

    def __init__(self, entries: Iterable[Blocked] = ()) -> None:
        self._actions: dict[Place, BlockAction] = {}
        self._restarting: set[Place] = set()
        for entry in entries:  # of two entries about one place, the stronger action applies
            if self._actions.get(entry.place) is not _EVACUATE:
                self._actions[entry.place] = entry.action
            if entry.action is _EVACUATE and entry.drivers is EvacuatedDrivers.RESTART:
                self._restarting.add(entry.place)

    @property
    def nodes(self) -> frozenset[str]:
        """Ids of the listed nodes."""
        return frozenset(place.id for place in self._actions if place.kind is PlaceKind.NODE)

    def is_blocked(self, task_manager: TaskManagerId, node_id: str) -> bool:
        """True if nothing new may be placed on this task manager."""
        return any(place in self._actions for place in _places(task_manager, node_id))

    def is_evacuated(self, task_manager: TaskManagerId, node_id: str) -> bool:
        """True if the work on this task manager must leave as well."""
        return any(self._actions.get(place) is _EVACUATE for place in _places(task_manager, node_id))

    def vacant(self, present: Iterable[tuple[TaskManagerId, str]]) -> tuple[str, ...]:
        """Describe the listed places that have none of the ``present`` task managers (id and node of each)."""
        there = {place for task_manager, node_id in present for place in _places(task_manager, node_id)}
        return tuple(str(place) for place in self._actions if place not in there)

    def restarts_drivers(self, task_manager: TaskManagerId, node_id: str) -> bool:
        """True if all drivers there must leave, even those that have to start again from the beginning."""
        return any(place in self._restarting for place in _places(task_manager, node_id))


def _places(task_manager: TaskManagerId, node_id: str) -> tuple[Place, Place]:
    return Place(PlaceKind.NODE, node_id), Place(PlaceKind.TASK_MANAGER, task_manager)
