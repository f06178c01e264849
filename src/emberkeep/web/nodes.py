"""Nodes for the page: their task managers, what runs on them, and their blocklist entries. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from emberkeep.base.errors import Absent
from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.blocklist.model import Blocked, BlockedNode, Blocklist
from emberkeep.jobmanager.views.cluster import TaskManagerView
from emberkeep.protocol.messages.task_manager_reports import ProcessState

_LAST_DAY = 253_402_214_400_000  # 9999-12-31


class EvacuationProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How many executors and drivers have left an evacuated node, of those that had to."""

    moved: int
    total: int

    @property
    def text(self) -> str:
        if self.moved >= self.total:
            return "nothing runs here any longer"
        return f"{self.moved} of {self.total} executors and drivers have moved"


class JobOnNode(msgspec.Struct, frozen=True, kw_only=True):
    """What a job has on a node. ``name``: "" if the job is unknown."""

    job_id: JobId
    name: str
    slots: int
    drivers: int


class NodeLine(msgspec.Struct, frozen=True, kw_only=True):
    """One node. ``entry``: None if the node is not blocked. ``leaving``: lines about what must still leave the node.

    ``away``: True if one of its task managers has lost contact.
    ``progress``: None unless the node, or a task manager on it, is evacuated.
    """

    id: str
    task_managers: tuple[TaskManagerId, ...]
    slots: int
    slots_taken: int
    drivers: int
    entry: Blocked | None
    away: bool = False
    leaving: tuple[str, ...] = ()
    progress: EvacuationProgress | None = None


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
            away=any(view.away for view in there),
            leaving=leaving(there),
            progress=progress(there),
        )
        for node, there in sorted(standing.items())
    ]


def node_line(node: str, blocklist: Blocklist, task_managers: Iterable[TaskManagerView]) -> NodeLine:
    """Return one node. Raises Absent if it has no task manager and is not blocked."""
    for line in node_lines(blocklist, task_managers):
        if line.id == node:
            return line
    raise Absent(
        f"no node {node!r} has a task manager, or is blocked",
        hint="a node is known while it is blocked, or one of its task managers is registered",
    )


def job_ids_on(there: Iterable[TaskManagerView]) -> set[JobId]:
    """Return the jobs with slots or drivers on these task managers."""
    reports = [view.report for view in there]
    held = {allocation.job_id for report in reports for allocation in report.allocations}
    return held | {driver.job_id for report in reports for driver in report.drivers}


def jobs_on(there: Iterable[TaskManagerView], names: Mapping[JobId, str]) -> list[JobOnNode]:
    """Return what jobs have on these task managers, those with the most slots first."""
    views = list(there)
    slots = Counter(held.job_id for view in views for held in view.report.allocations)
    drivers = Counter(
        driver.job_id for view in views for driver in view.report.drivers if driver.state is not ProcessState.EXITED
    )
    found = [
        JobOnNode(job_id=job_id, name=names.get(job_id, ""), slots=slots[job_id], drivers=drivers[job_id])
        for job_id in slots.keys() | drivers.keys()
    ]
    return sorted(found, key=lambda job: (-job.slots, job.name, job.job_id))


def progress(there: Iterable[TaskManagerView]) -> EvacuationProgress | None:
    """Return the progress of the evacuations of these task managers; None if none is evacuated."""
    found = [view.evacuation for view in there if view.evacuation is not None]
    if not found:
        return None
    total = sum(each.total for each in found)
    return EvacuationProgress(moved=total - sum(each.left for each in found), total=total)


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
