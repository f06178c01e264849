"""The capacity map: who holds which slot of which node. Pure functions.

Each job has a colour, a pattern and two characters. They follow from its id, so they stay the same whenever the map is
drawn, and a reader who does not see colours can tell jobs apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Final

import msgspec

from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.jobmanager.views.cluster import TaskManagerView
from emberkeep.protocol.messages.task_manager_reports import ProcessState
from emberkeep.web.nodes import EvacuationProgress, leaving, progress

MOST_NODES: Final = 80
MOST_SLOTS: Final = 48  # of one node
MOST_JOBS: Final = 24  # in the legend
_COLOURS: Final = 8  # --plot-1 to --plot-8
_PATTERNS: Final = 4


class JobMark(msgspec.Struct, frozen=True, kw_only=True):
    """How a job is shown. ``name``: "" if the job is unknown."""

    job_id: JobId
    name: str
    colour: int  # 1 to 8
    pattern: int  # 1 to 4
    slots: int = 0  # that it holds in the cluster

    @property
    def text(self) -> str:
        return self.job_id[:2]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Neighbouring slots with the same holder. ``mark``: None if they are free."""

    mark: JobMark | None
    slots: int


class NodeSlots(msgspec.Struct, frozen=True, kw_only=True):
    """The slots of one node. ``state``: "", away, blocked or evacuated. ``hidden``: slots that ``runs`` leaves out."""

    node: str
    task_managers: tuple[TaskManagerId, ...]
    runs: tuple[Run, ...]
    slots: int
    taken: int
    drivers: int
    state: str = ""
    leaving: tuple[str, ...] = ()
    progress: EvacuationProgress | None = None
    hidden: int = 0


class CapacityMap(msgspec.Struct, frozen=True, kw_only=True):
    """``nodes``: those that need attention first, then by name. ``jobs``: those with the most slots first."""

    nodes: tuple[NodeSlots, ...]
    jobs: tuple[JobMark, ...]
    nodes_hidden: int = 0
    jobs_hidden: int = 0


def job_mark(job_id: JobId, name: str = "", slots: int = 0) -> JobMark:
    """Return how the map shows a job."""
    number = int(job_id[:8], 16)
    return JobMark(
        job_id=job_id,
        name=name,
        colour=number % _COLOURS + 1,
        pattern=number // _COLOURS % _PATTERNS + 1,
        slots=slots,
    )


def capacity_map(task_managers: Iterable[TaskManagerView], names: Mapping[JobId, str]) -> CapacityMap:
    """Return the map of all slots, bounded. ``names``: of jobs."""
    by_node: dict[str, list[TaskManagerView]] = {}
    for view in task_managers:
        by_node.setdefault(view.info.node_id, []).append(view)
    held = Counter(held.job_id for views in by_node.values() for view in views for held in view.report.allocations)
    marks = {job_id: job_mark(job_id, names.get(job_id, ""), slots) for job_id, slots in held.items()}
    nodes = sorted(
        (_node(node, views, marks) for node, views in by_node.items()), key=lambda each: (each.state == "", each.node)
    )
    shown = sorted(marks.values(), key=lambda mark: (-mark.slots, mark.name, mark.job_id))
    return CapacityMap(
        nodes=tuple(nodes[:MOST_NODES]),
        jobs=tuple(shown[:MOST_JOBS]),
        nodes_hidden=max(0, len(nodes) - MOST_NODES),
        jobs_hidden=max(0, len(shown) - MOST_JOBS),
    )


def _node(node: str, views: list[TaskManagerView], marks: Mapping[JobId, JobMark]) -> NodeSlots:
    holders = [holder for view in views for holder in _holders(view, marks)]
    states = (
        ("evacuated", any(view.evacuated for view in views)),
        ("blocked", any(view.blocked for view in views)),
        ("away", any(view.away for view in views)),
    )
    return NodeSlots(
        node=node,
        task_managers=tuple(view.info.id for view in views),
        runs=tuple(Run(mark=mark, slots=len(list(same))) for mark, same in groupby(holders[:MOST_SLOTS])),
        slots=len(holders),
        taken=sum(holder is not None for holder in holders),
        drivers=sum(driver.state is not ProcessState.EXITED for view in views for driver in view.report.drivers),
        state=next((name for name, applies in states if applies), ""),
        leaving=leaving(views),
        progress=progress(views),
        hidden=max(0, len(holders) - MOST_SLOTS),
    )


def _holders(view: TaskManagerView, marks: Mapping[JobId, JobMark]) -> list[JobMark | None]:
    """Return the holder of each slot of a task manager, by the slot's index."""
    holders: list[JobMark | None] = [None] * view.info.slots
    for allocation in view.report.allocations:
        if 0 <= allocation.slot_index < len(holders):
            holders[allocation.slot_index] = marks[allocation.job_id]
    return holders
