"""The picture of ``emberkeep top``: the cluster in one line, its nodes, and its jobs with those in need first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from emberkeep.base.inert_text import inert
from emberkeep.cli.nodes.status import evacuation_text
from emberkeep.cli.tables import FittedTable
from emberkeep.cli.wording import (
    SHORT_ID,
    alarm_text,
    backlog_text,
    counted,
    duration,
    executors_registered,
    executors_text,
    memory,
    timestamp,
)
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.progress.rest_work import WorkInfo
from emberkeep.protocol.rest_cluster import ClusterOverview
from emberkeep.protocol.rest_jobs import JobDetails, JobDetailsInfo, JobExtension, StreamingQuery
from emberkeep.protocol.rest_task_managers import TaskManagerState, TaskManagerSummary

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.segment import Segment

_JOB_COLUMNS = (
    *("JOB ID", "NAME", "STATE", "FOR", "ATTEMPT", "EXECUTORS", "TASKS"),
    *("ROWS/S IN", "ROWS/S OUT", "BACKLOG", "NOW"),
)
_NODE_COLUMNS = ("NODE", "TASK MANAGER", "STATE", "CPU", "MEMORY USED", "DISK FREE", "SLOTS", "DRIVERS", "NOW")
_ABOVE = 4  # lines of a screen that others need: its title, perhaps a problem
_AROUND_ROWS = 3  # lines of a shortened table that are no rows
# What is left out first on a narrow terminal.
_LESS_OF_JOBS = ("ATTEMPT", "TASKS", "ROWS/S IN", "EXECUTORS", "JOB ID", "ROWS/S OUT", "FOR")
_LESS_OF_NODES = ("TASK MANAGER", "DRIVERS", "DISK FREE", "MEMORY USED")


@dataclass(frozen=True)
class TopPicture:
    """What ``emberkeep top`` shows. ``cluster`` is None if the caller may see only its own jobs.

    ``unfinished`` has jobs that have not ended, those that need a person first; ``more``: how many there are besides.
    """

    cluster: ClusterOverview | None
    task_managers: Sequence[TaskManagerSummary]
    unfinished: Sequence[JobDetailsInfo]
    more: int


def top_lines(picture: TopPicture) -> list[str]:
    """Return the cluster's state in a line, and a line for each thing that needs a person."""
    jobs = counted(len(picture.unfinished) + picture.more, "unfinished job")
    if picture.cluster is None:
        return [jobs]
    overview, own = picture.cluster, picture.cluster.emberkeep
    silent = f", {own.taskmanagers_away} silent" if own.taskmanagers_away else ""
    blocked = f", {overview.taskmanagers_blocked} blocked" if overview.taskmanagers_blocked else ""
    lines = [
        f"JobManager {own.job_manager} leads since {timestamp(own.started)}, version {own.version}",
        f"{jobs} · {counted(overview.taskmanagers, 'task manager')}{silent}{blocked} · "
        f"slots {overview.slots_available} of {overview.slots_total} free · "
        f"driver places {own.driver_places_available} of {own.driver_places_total} free",
    ]
    problems = (own.problem, own.blocklist_problem, own.storage_problem)
    return [*lines, *(f"attention: {problem}" for problem in problems if problem)]


def need(job: JobDetails | JobDetailsInfo) -> tuple[bool, bool, bool, bool]:
    """Return what jobs are ordered by: first those with alarms, then lost ones, those that do not run, that wait."""
    own = job.emberkeep
    return not own.alarms, not job.state.is_troubled, job.state is JobStatus.RUNNING, not own.waiting


def job_rows(jobs: Sequence[JobDetailsInfo]) -> list[tuple[str, ...]]:
    """Return a row for each job, by need; of those that are alike, the busiest first."""
    return [_job_row(job) for job in sorted(jobs, key=lambda job: (need(job), -_processed(job)))]


def _processed(job: JobDetailsInfo) -> float:
    return sum(query.processed_rows_per_second for query in job.emberkeep.queries)


def _job_row(job: JobDetailsInfo) -> tuple[str, ...]:
    own = job.emberkeep
    entered = job.timestamps.get(job.state, 0)
    running, done = job.status_counts.get("RUNNING", 0), job.status_counts.get("FINISHED", 0)
    return (
        job.jid[:SHORT_ID],
        job.name,
        job.state.value,
        duration(job.now - entered if entered else job.duration),
        str(own.attempt),
        executors_text(executors_registered(job), own.executors_wanted) or "-",
        _tasks(running, done, own.work),
        _rate(own.queries, [query.input_rows_per_second for query in own.queries]),
        _rate(own.queries, [query.processed_rows_per_second for query in own.queries]),
        backlog_text(own.queries),
        _now(own),
    )


def _now(own: JobExtension) -> str:
    """Return what is wrong, else what the job waits for, else what it does."""
    if own.alarms:
        return f"ALARM {'; '.join(map(alarm_text, own.alarms))}"
    if own.waiting or own.queries:
        return own.waiting or ", ".join(_batch(query) for query in own.queries)
    left = None if own.work is None else own.work.time_left
    return "-" if left is None else f"about {duration(left)} left of its Spark jobs"


def _tasks(running: int, done: int, work: WorkInfo | None) -> str:
    if not running and not done:
        return "-"
    total = f" of {work.tasks_total}" if work is not None and work.tasks_total > done else ""
    return f"{running} running, {done}{total} done"


def _rate(queries: Sequence[StreamingQuery], rates: Sequence[float]) -> str:
    return f"{sum(rates):,.0f}" if queries else "-"


def _batch(query: StreamingQuery) -> str:
    name = query.name or query.id[:SHORT_ID]
    return f"{name} batch {query.batch_id}" if query.batch_id >= 0 else f"{name} no batch yet"


def node_rows(task_managers: Sequence[TaskManagerSummary]) -> list[tuple[str, ...]]:
    """Return a row for each task manager: first the silent ones, then the blocked ones, then the others, by node."""
    return [_node_row(each) for each in sorted(task_managers, key=_node_need)]


def _node_need(each: TaskManagerSummary) -> tuple[bool, bool, str, str]:
    own = each.emberkeep
    return own.state is TaskManagerState.ALIVE, not each.blocked, own.node_id, each.id


def _node_row(each: TaskManagerSummary) -> tuple[str, ...]:
    own = each.emberkeep
    return (
        own.node_id,
        each.id,
        own.state.value,
        f"{own.cpu_percent:.0f} %",
        f"{memory(own.memory_used_mb)} of {memory(each.total_resource.task_heap_memory)}",
        memory(own.disk_free_mb),
        f"{each.slots_number - each.free_slots} of {each.slots_number}",
        f"{own.driver_places_total - own.driver_places_available} of {own.driver_places_total}",
        evacuation_text([each]) or ("blocked" if each.blocked else "-"),
    )


@dataclass(frozen=True)
class _Listing:
    """A table, and a line that says how many rows are not shown. ``more``: how many there are besides ``rows``.

    ``where``: what shows all. ``nothing``: the text without rows.
    """

    columns: Sequence[str]
    rows: Sequence[tuple[str, ...]]
    dispensable: Sequence[str]
    more: int
    where: str
    nothing: str = ""

    def lines(self, console: Console, options: ConsoleOptions, most: int | None = None) -> list[list[Segment]]:
        """Return the lines of as many rows as fit into ``most`` lines; None: of all."""
        found = self._rendered(console, options, len(self.rows))
        if most is None or len(found) <= most:
            return found
        for shown in range(min(len(self.rows) - 1, most - _AROUND_ROWS), 0, -1):
            found = self._rendered(console, options, shown)
            if len(found) <= most:
                return found
        return self._rendered(console, options, 0)[-1:] if most > 0 else []

    def _rendered(self, console: Console, options: ConsoleOptions, shown: int) -> list[list[Segment]]:
        from rich.console import Group
        from rich.text import Text

        parts: list[RenderableType] = [Text()]
        if shown:
            parts.append(FittedTable(self.columns, self.rows[:shown], self.dispensable))
        elif not self.rows:
            parts.append(Text(self.nothing, style="dim"))
        if hidden := self.more + len(self.rows) - shown:
            parts.append(Text(f"… {hidden} more: `{self.where}` shows all", style="dim"))
        return console.render_lines(Group(*parts), options, pad=False)


class _Parts:
    """A head, jobs and nodes, one below the other. On a screen, the long parts end early, so that all are seen."""

    def __init__(self, head: RenderableType, *listings: _Listing) -> None:
        self._head = head
        self._listings = listings

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment

        free = options.update(height=None)
        head = console.render_lines(self._head, free, pad=False)
        parts = [listing.lines(console, free) for listing in self._listings]
        if console.is_alt_screen:
            room = options.max_height - _ABOVE - len(head)
            rooms = [room]
            if len(parts) > 1:
                jobs, nodes = map(len, parts)
                least = max(room // 3, room - jobs)
                rooms = [room - min(nodes, least), least]
            parts = [listing.lines(console, free, most) for listing, most in zip(self._listings, rooms, strict=True)]
        for line in chain(head, *parts):
            yield from (*line, Segment.line())


def render(picture: TopPicture) -> RenderableType:
    """Return the picture, for a terminal or as text."""
    from rich.console import Group
    from rich.text import Text

    lines = [Text(inert(line), style="bold red" if line.startswith("attention") else "") for line in top_lines(picture)]
    rows, nothing = job_rows(picture.unfinished), "no job is waiting or running"
    jobs = _Listing(_JOB_COLUMNS, rows, _LESS_OF_JOBS, picture.more, "emberkeep list", nothing)
    rows = node_rows(picture.task_managers)
    nodes = _Listing(_NODE_COLUMNS, rows, _LESS_OF_NODES, 0, "emberkeep taskmanagers list")
    return _Parts(Group(*lines), jobs, *([nodes] if rows else []))
