"""Nodes for the page: their task managers, what runs on them, and their blocklist entries. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from emberkeep.base.ids import TaskManagerId
from emberkeep.blocklist.model import Blocked, BlockedNode, Blocklist
from emberkeep.jobmanager.views.cluster import TaskManagerView

_LAST_DAY = 253_402_214_400_000  # 9999-12-31


class NodeLine(msgspec.Struct, frozen=True, kw_only=True):
    """One node. ``entry``: None if the node is not blocked. ``leaving``: lines about what must still leave the node."""

    id: str
    task_managers: tuple[TaskManagerId, ...]
    slots: int
    slots_taken: int
    drivers: int
    entry: Blocked | None
    leaving: tuple[str, ...] = ()


def node_lines(blocklist: Blocklist, task_managers: Iterable[TaskManagerView]) -> list[NodeLine]:
    """Return the nodes that have a task manager or are blocked, ordered by id."""
    entries = {entry.id: entry for entry in blocklist.entries if isinstance(entry, BlockedNode)}
    standing: dict[str, list[TaskManagerView]] = {node: [] for node in entries}
    for view in task_managers:
        standing.setdefault(view.info.node_id, []).append(view)
    return [
        NodeLine(
            id=node,
            task_managers=tuple(view.info.id for view in there),
            slots=sum(view.info.slots for view in there),
            slots_taken=sum(view.info.slots - view.free_slots for view in there),
            drivers=sum(view.info.driver_places - view.free_driver_places for view in there),
            entry=entries.get(node),
            leaving=leaving(there),
        )
        for node, there in sorted(standing.items())
    ]


def leaving(there: Iterable[TaskManagerView]) -> tuple[str, ...]:
    """Return lines about what must still leave the task managers of a node."""
    evacuations = [view.evacuation for view in there if view.evacuation is not None]
    executors, alone = (sum(one.executors for one in evacuations), sum(one.executors_waiting for one in evacuations))
    moving, staying = (sum(one.drivers_moving for one in evacuations), sum(one.drivers_staying for one in evacuations))
    bound = "at least " if any(one.at_least for one in evacuations) else ""
    shuffle, cached = (sum(one.shuffle_blocks for one in evacuations), sum(one.cached_blocks for one in evacuations))
    lines = (
        (executors, f"executors leaving: {executors}, with {bound}{shuffle} shuffle and {cached} cached blocks"),
        (alone, f"of them without another executor to hand over to: {alone}"),
        (moving, f"drivers moving: {moving}"),
        (staying, f"drivers staying until their jobs end: {staying}"),
    )
    return tuple(line for count, line in lines if count)


def blocked_task_managers(blocklist: Blocklist) -> list[Blocked]:
    """Return the entries about single task managers, ordered by id."""
    entries = [entry for entry in blocklist.entries if not isinstance(entry, BlockedNode)]
    return sorted(entries, key=lambda entry: entry.id)


def lapse(end_ms: int) -> int | None:
    """Return when an entry of the blocklist expires, in Unix milliseconds; None if it never does.

    An end on or after 9999-12-31 means never.
    """
    return None if end_ms >= _LAST_DAY else end_ms
