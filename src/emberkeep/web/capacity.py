"""The capacity map: who holds which slot of which node. Pure functions.

Each job has a colour, a pattern and two characters. They follow from its id, so they stay the same whenever the map is
drawn, and a reader who does not see colours can tell jobs apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Final, NamedTuple

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
    kept: int = 0  # that are kept in the cluster while it restarts

    @property
    def text(self) -> str:
        return self.job_id[:2]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Neighbouring slots with the same holder. ``mark``: None if they are free.

    ``kept``: nobody holds them, and they are kept for the next attempt of the marked job.
    """

    mark: JobMark | None
    slots: int
    kept: bool = False


class _Holder(NamedTuple):
    """Who has a slot: the marked job, or nobody. ``kept``: see ``Run``."""

    mark: JobMark | None
    kept: bool = False


_NOBODY: Final = _Holder(None)


class NodeSlots(msgspec.Struct, frozen=True, kw_only=True):
    """The slots of one node. ``state``: "", away, blocked or evacuated. ``hidden``: slots that ``runs`` leaves out.

    ``taken``: slots that are not free, with those that are ``kept``.
    """

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
    kept: int = 0


class CapacityMap(msgspec.Struct, frozen=True, kw_only=True):
    """``nodes``: those that need attention first, then by name. ``jobs``: those with the most slots first."""

    nodes: tuple[NodeSlots, ...]
    jobs: tuple[JobMark, ...]
    nodes_hidden: int = 0
    jobs_hidden: int = 0


def job_mark(job_id: JobId, name: str = "", slots: int = 0, kept: int = 0) -> JobMark:
    """Return how the map shows a job."""
    number = int(job_id[:8], 16)
    return JobMark(
        job_id=job_id,
        name=name,
        colour=number % _COLOURS + 1,
        pattern=number // _COLOURS % _PATTERNS + 1,
        slots=slots,
        kept=kept,
    )


def capacity_map(task_managers: Iterable[TaskManagerView], names: Mapping[JobId, str]) -> CapacityMap:
    """Return the map of all slots, bounded. ``names``: of jobs."""
    by_node: dict[str, list[TaskManagerView]] = {}
    for view in task_managers:
        by_node.setdefault(view.info.node_id, []).append(view)
    every = [view for views in by_node.values() for view in views]
    held = Counter(slot.job_id for view in every for slot in view.report.allocations)
    kept = Counter(slot.job_id for view in every for slot in view.kept)
    marks = {job_id: job_mark(job_id, names.get(job_id, ""), held[job_id], kept[job_id]) for job_id in (held | kept)}
    nodes = sorted(
        (_node(node, views, marks) for node, views in by_node.items()), key=lambda each: (each.state == "", each.node)
    )
    shown = sorted(marks.values(), key=lambda mark: (-mark.slots - mark.kept, mark.name, mark.job_id))
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
        runs=tuple(
            Run(mark=holder.mark, slots=len(list(same)), kept=holder.kept)
            for holder, same in groupby(holders[:MOST_SLOTS])
        ),
        slots=len(holders),
        taken=sum(holder is not _NOBODY for holder in holders),
        drivers=sum(driver.state is not ProcessState.EXITED for view in views for driver in view.report.drivers),
        state=next((name for name, applies in states if applies), ""),
        leaving=leaving(views),
        progress=progress(views),
        hidden=max(0, len(holders) - MOST_SLOTS),
        kept=sum(holder.kept for holder in holders),
    )


def _holders(view: TaskManagerView, marks: Mapping[JobId, JobMark]) -> list[_Holder]:
    """Return the holder of each slot of a task manager, by the slot's index.

    A kept slot is where it was; if that is taken, or it had no index yet, it is in the next free place.
    """
    holders = [_NOBODY] * view.info.slots
    for allocation in view.report.allocations:
        if 0 <= allocation.slot_index < len(holders):
            holders[allocation.slot_index] = _Holder(marks[allocation.job_id])
    for slot in view.kept:
        free = [index for index, holder in enumerate(holders) if holder is _NOBODY]
        if free:
            place = slot.slot_index if slot.slot_index in free else free[0]
            holders[place] = _Holder(marks[slot.job_id], kept=True)
    return holders
