"""REST bodies about the Spark jobs, stages and tasks of a job's current attempt."""

from __future__ import annotations

from emberkeep.protocol.rest import Duration, Kebab, Millis


class StageInfo(Kebab, frozen=True, kw_only=True):
    """One stage. ``status``: Spark's, such as ``ACTIVE`` or ``COMPLETE``.

    ``operations``: what the stage does, such as ``Scan csv → Exchange``, as the Spark UI draws it; empty if that is
    unknown. Stages of one query often have the same ``name``.

    ``median-duration``: of the tasks that have succeeded; 0 while there is none. ``longest-running``: how long the
    longest-running task has run; 0 if none runs. ``longest-duration``: of the slowest task; one that still runs counts
    with its time so far. ``skew``: how many times the median the slowest task took; null while that is unknown.
    ``time-left``: estimated from the median and the tasks that run now; null unless tasks run and some have ended, and
    if a task is overdue. ``overdue``: the longest-running task has run for more than twice the median, and for longer
    than what is left would take at the median. ``memory-bytes-spilled`` and ``disk-bytes-spilled``: what did not fit
    into the memory of tasks, before and after it was serialized.
    """

    stage_id: int
    stage_attempt: int
    name: str
    operations: str = ""
    status: str
    tasks: int
    running: int
    finished: int
    failed: int
    submission_time: Millis
    median_duration: Duration
    longest_duration: Duration
    skew: float | None
    time_left: Duration | None
    longest_running: Duration = 0
    overdue: bool = False
    memory_bytes_spilled: int
    disk_bytes_spilled: int


class WorkInfo(Kebab, frozen=True, kw_only=True):
    """What the current attempt has done since its start, in all its SparkContexts, as Spark counts it.

    ``task-time``: how long tasks ran on all executors; ``gc-time``: the part of it that went into garbage collection.
    ``shuffle-read`` and ``shuffle-write``: bytes. ``memory-bytes-spilled`` and ``disk-bytes-spilled``: of stages that
    were seen while they were active. ``time-left``: of the active Spark jobs, estimated from the mean duration of all
    tasks so far; null unless tasks run and some have ended, and if a task is overdue. ``stages``: the active ones,
    newest first, then the newest of those that were seen and have ended; 20 at most.
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
    memory_bytes_spilled: int
    disk_bytes_spilled: int
    time_left: Duration | None
    stages: list[StageInfo]


class EndedExecutorInfo(Kebab, frozen=True, kw_only=True):
    """What an executor of the newest Spark application had done when it ended. ``host``: where it ran.

    ``task-time``: how long its tasks ran; ``gc-time``: the part of it that went into garbage collection.
    """

    id: str
    host: str
    tasks_finished: int
    tasks_failed: int
    task_time: Duration
    gc_time: Duration


class CourseInfo(Kebab, frozen=True, kw_only=True):
    """The work of a job over its whole time, over all attempts. 120 samples at most, oldest first.

    A sample stands for ``interval`` from ``began`` on, which doubles each time that there are too many samples.
    ``executors``: the most that there were in the sample. All others are sums from the job's start until the end of the
    sample: ``tasks-finished``; ``task-time``, of tasks that have ended, and ``gc-time``, the part of it that went into
    garbage collection; bytes of shuffles and spills. A driver of an earlier release records tasks and executors only:
    then the other lists are empty.
    """

    began: Millis
    interval: Duration
    tasks_finished: list[int]
    executors: list[int]
    task_time: list[Duration]
    gc_time: list[Duration]
    shuffle_read: list[int]
    shuffle_write: list[int]
    memory_bytes_spilled: list[int]
    disk_bytes_spilled: list[int]
