"""What an attempt's Spark applications have done since the attempt began. Pure.

Spark counts per application. An attempt may have several applications, one after the other, so their counts are added.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from emberkeep.base.compatible import Compatible

STAGES_KEPT = 20  # stages that a report names: the active ones first, then those that ended last
EXECUTORS_KEPT = 500  # active executors that a report has: those that collected most garbage
ENDED_EXECUTORS_KEPT = 30  # executors that have ended: those whose tasks took most time
ACTIVE = "ACTIVE"  # the status of a stage whose tasks run
OVERDUE = 2  # a task that has run for more than so many times the typical time is overdue
NAME_LIMIT = 200  # characters of a stage's name, and of its operations


class StageProgress(Compatible, frozen=True, kw_only=True):
    """One stage of the current application. ``status``: as Spark names it, such as ACTIVE or COMPLETE.

    ``median_ms``: how long the median of its tasks took that have succeeded; 0 while none has. ``slowest_ms``: how long
    the slowest took; a task that still runs counts with its time so far. ``running_ms``: how long the longest-running
    of its tasks has run; 0 if none runs, if that is unknown, and from earlier releases.
    ``spilled_memory`` and ``spilled_disk``: bytes that did not fit into the memory of tasks, before and after they were
    serialized and written to disks. ``operations``: what the stage does, such as ``Scan csv → Exchange``, in the order
    of the data; "" if Spark does not say so, and from earlier releases. Stages of one query often have one name.
    """

    stage_id: int
    stage_attempt: int
    name: str
    status: str
    tasks: int
    active: int
    completed: int
    failed: int
    submitted_ms: int = 0  # 0: it waits for its first task
    median_ms: int = 0
    slowest_ms: int = 0
    spilled_memory: int = 0
    spilled_disk: int = 0
    operations: str = ""
    running_ms: int = 0

    @property
    def left_ms(self) -> int | None:
        """About how long the stage still takes: what is left, at the median of its tasks, as many at once as now.

        None unless tasks run and some have ended, and while it waits for a task that is overdue.
        """
        return None if self.overdue_ms is not None else self._left_ms()

    @property
    def overdue_ms(self) -> int | None:
        """How long the task has run because of which the time left is unknown; None if there is no such task."""
        left_ms = self._left_ms()
        is_overdue = left_ms is not None and _is_overdue(self.running_ms, self.median_ms, left_ms)
        return self.running_ms if is_overdue else None

    def _left_ms(self) -> int | None:
        if self.status != ACTIVE or self.active <= 0 or self.median_ms <= 0:
            return None
        return self.median_ms * max(0, self.tasks - self.completed) // self.active

    @property
    def skew(self) -> float | None:
        """How many times the median the slowest task took; None while that is unknown."""
        return self.slowest_ms / self.median_ms if self.median_ms > 0 else None


def _is_overdue(running_ms: int, typical_ms: int, left_ms: int) -> bool:
    """Return whether a task has run so long that nobody can say when it ends.

    It has run for more than twice the typical time of a task, and for longer than everything else takes that is left.
    A task that has run for less than that probably ends before the others do.
    """
    return running_ms > max(OVERDUE * typical_ms, left_ms)


class ExecutorWork(Compatible, frozen=True, kw_only=True):
    """What one executor has done since its start: how long its tasks ran, and how long of it in garbage collection.

    ``host``: the machine that it runs on, or has run on, as Spark names it. ``active``: False once it has ended.
    ``tasks``: those that have succeeded. ``failed``: tasks.
    """

    executor_id: str
    task_ms: int = 0
    gc_ms: int = 0
    host: str = ""
    active: bool = True
    tasks: int = 0
    failed: int = 0

    @property
    def gc_share(self) -> float | None:
        """The share of task time that went into garbage collection; None before there is any task time."""
        return min(1.0, self.gc_ms / self.task_ms) if self.task_ms > 0 else None


class AttemptWork(Compatible, frozen=True, kw_only=True):
    """Jobs, stages and tasks of an attempt, from its start on. Counts of what has ended never decrease.

    ``total_tasks``: those that have succeeded, and those of active jobs that have not. ``task_ms``: time that tasks ran
    on all executors, of which ``gc_ms`` was spent in garbage collection. ``spilled_memory`` and ``spilled_disk``: of
    stages that were seen while they were active. Other bytes are those of shuffles.
    """

    active_jobs: int = 0
    completed_jobs: int = 0
    active_stages: int = 0
    completed_stages: int = 0
    total_tasks: int = 0
    active_tasks: int = 0
    completed_tasks: int = 0
    failed_tasks: int = 0
    task_ms: int = 0
    gc_ms: int = 0
    shuffle_read: int = 0
    shuffle_written: int = 0
    spilled_memory: int = 0
    spilled_disk: int = 0
    stages: tuple[StageProgress, ...] = ()
    executors: tuple[ExecutorWork, ...] = ()  # of the newest application: active ones first; bounded

    @property
    def left_ms(self) -> int | None:
        """About how long the active Spark jobs still take: their tasks, at the mean of all tasks so far.

        None unless tasks run and some have ended, and while they wait for a task that is overdue. What the script does
        after these jobs is unknown.
        """
        if self.active_tasks <= 0 or self.completed_tasks <= 0 or self.task_ms <= 0:
            return None
        left = max(0, self.total_tasks - self.completed_tasks)
        left_ms = self.task_ms * left // (self.completed_tasks * self.active_tasks)
        running_ms = max((stage.running_ms for stage in self.stages), default=0)
        return None if _is_overdue(running_ms, self.task_ms // self.completed_tasks, left_ms) else left_ms


def most_worked(executors: Iterable[ExecutorWork]) -> tuple[ExecutorWork, ...]:
    """Return ENDED_EXECUTORS_KEPT of these executors, as ended: those whose tasks took most time."""
    chosen = sorted(executors, key=lambda one: -one.task_ms)[:ENDED_EXECUTORS_KEPT]
    return tuple(msgspec.structs.replace(one, active=False) if one.active else one for one in chosen)


_OF_NOW = ("active_jobs", "active_stages", "active_tasks", "stages", "executors")
NOTHING_DONE = AttemptWork()


def ended(work: AttemptWork) -> AttemptWork:
    """Return the work of an application that has ended: nothing of it is active, and no task is left to do."""
    return msgspec.structs.replace(
        work,
        active_jobs=0,
        active_stages=0,
        active_tasks=0,
        total_tasks=work.completed_tasks,
        stages=tuple(
            msgspec.structs.replace(stage, active=0, running_ms=0) for stage in work.stages if stage.status != ACTIVE
        ),
        executors=most_worked(work.executors),
    )


def added(before: AttemptWork, now: AttemptWork) -> AttemptWork:
    """Return the sum of the work of ended applications and of the current one."""
    counts = [name for name in AttemptWork.__struct_fields__ if name not in _OF_NOW]
    return msgspec.structs.replace(now, **{name: getattr(before, name) + getattr(now, name) for name in counts})
