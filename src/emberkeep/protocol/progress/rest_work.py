"""REST bodies about the Spark jobs, stages and tasks of a job's current attempt."""

from __future__ import annotations

from emberkeep.protocol.rest import Duration, Kebab, Millis


class StageInfo(Kebab, frozen=True, kw_only=True):
    """One stage. ``status``: Spark's, such as ``ACTIVE`` or ``COMPLETE``.

    ``median-duration`` and ``longest-duration``: of the tasks that have succeeded; 0 while there is none. ``skew``: how
    many times the median the slowest task took; null while that is unknown.
    """

    stage_id: int
    stage_attempt: int
    name: str
    status: str
    tasks: int
    running: int
    finished: int
    failed: int
    submission_time: Millis
    median_duration: Duration
    longest_duration: Duration
    skew: float | None


class WorkInfo(Kebab, frozen=True, kw_only=True):
    """What the current attempt has done since its start, in all its SparkContexts, as Spark counts it.

    ``task-time``: how long tasks ran on all executors; ``gc-time``: the part of it that went into garbage collection.
    ``shuffle-read`` and ``shuffle-write``: bytes. ``stages``: the active ones, newest first, then the newest of those
    that were seen and have ended; 20 at most.
    """

    jobs_active: int
    jobs_completed: int
    stages_active: int
    stages_completed: int
    tasks_total: int
    tasks_running: int
    tasks_finished: int
    tasks_failed: int
    task_time: Duration
    gc_time: Duration
    shuffle_read: int
    shuffle_write: int
    stages: list[StageInfo]
