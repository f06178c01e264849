"""How many tasks a job had done, at what cost, and how many executors it had, over its whole time. Pure.

A job may last for months, so the samples become coarser as it lasts: once there are too many, each two become one.
"""

from __future__ import annotations

from collections.abc import Iterable

from emberkeep.base.compatible import Compatible
from emberkeep.jobs.progress.work import AttemptWork

SAMPLES_KEPT = 120
FIRST_STEP_MS = 10_000

# What is counted from the job's start on, by the name in a course and in what an attempt has done.
COUNTED = {
    "tasks": "completed_tasks",
    "task_ms": "task_ms",
    "gc_ms": "gc_ms",
    "shuffle_read": "shuffle_read",
    "shuffle_written": "shuffle_written",
    "spilled_memory": "spilled_memory",
    "spilled_disk": "spilled_disk",
}


class Course(Compatible, frozen=True, kw_only=True):
    """Samples of a job, oldest first: one for each ``step_ms`` from ``began_ms`` on, at most SAMPLES_KEPT.

    ``executors``: the most that there were in the interval. All others are sums over all attempts until its end:
    tasks that have succeeded, how long tasks ran, how long of it in garbage collection, and bytes. Where a process of
    an earlier release has recorded them, there are only tasks and executors.
    """

    began_ms: int
    step_ms: int = FIRST_STEP_MS
    tasks: tuple[int, ...] = ()
    executors: tuple[int, ...] = ()
    task_ms: tuple[int, ...] = ()
    gc_ms: tuple[int, ...] = ()
    shuffle_read: tuple[int, ...] = ()
    shuffle_written: tuple[int, ...] = ()
    spilled_memory: tuple[int, ...] = ()
    spilled_disk: tuple[int, ...] = ()

    @property
    def newest_ms(self) -> int:
        """When the newest interval begins."""
        return self.began_ms + max(0, len(self.tasks) - 1) * self.step_ms

    @property
    def is_well_formed(self) -> bool:
        """True if this may have been recorded."""
        count = len(self.tasks)
        counted = (len(getattr(self, name)) for name in COUNTED)
        return (
            len(self.executors) == count <= SAMPLES_KEPT
            and all(length in (0, count) for length in counted)
            and self.step_ms > 0
        )


class CourseLog:
    """The course of a job, which the newest attempt records.

    The job's sums are those of its earlier attempts, which ``continue_from`` says, and those of the attempt. Times are
    Unix milliseconds. If the clock is set back, all that is known moves back with it, so that the course continues.
    """

    def __init__(self) -> None:
        self._began_ms = 0
        self._noted_ms = 0  # the newest time
        self._step_ms = FIRST_STEP_MS
        self._executors: list[int] = []
        self._sums: dict[str, list[int]] = {name: [] for name in COUNTED}
        self._before = dict.fromkeys(COUNTED, 0)  # of earlier attempts

    def note(self, work: AttemptWork, executors: int, now_ms: int) -> None:
        """Note what the attempt has done, and how many executors it has."""
        self._put({name: getattr(work, counted) for name, counted in COUNTED.items()}, executors, now_ms)

    def continue_from(self, earlier: Course) -> None:
        """Put what earlier attempts have recorded in front."""
        own = self.course()
        count = len(earlier.tasks)
        self._began_ms, self._step_ms, self._executors = earlier.began_ms, earlier.step_ms, list(earlier.executors)
        self._noted_ms = earlier.newest_ms
        self._sums = {name: list(getattr(earlier, name) or (0,) * count) for name in COUNTED}
        self._before = {name: max(sums, default=0) for name, sums in self._sums.items()}
        if own is not None:
            for index, executors in enumerate(own.executors):
                sums = {name: getattr(own, name)[index] for name in COUNTED}
                self._put(sums, executors, own.began_ms + index * own.step_ms)

    def course(self) -> Course | None:
        """Return what is known; None if nothing is."""
        if not self._executors:
            return None
        sums = {name: tuple(values) for name, values in self._sums.items()}
        return Course(began_ms=self._began_ms, step_ms=self._step_ms, executors=tuple(self._executors), **sums)

    def _put(self, of_attempt: dict[str, int], executors: int, now_ms: int) -> None:
        if not self._executors:
            self._began_ms = now_ms
        elif now_ms < self._noted_ms - self._step_ms:
            self._began_ms -= self._noted_ms - now_ms
        self._noted_ms = now_ms
        index = self._index(now_ms)
        while index >= SAMPLES_KEPT:
            self._halve()
            index = self._index(now_ms)
        while len(self._executors) <= index:  # no attempt ran, or Spark did not answer
            self._executors.append(0)
            for values in self._sums.values():
                values.append(values[-1] if values else 0)
        self._executors[index] = max(self._executors[index], executors)
        for name, values in self._sums.items():
            values[index] = max(values[index], self._before[name] + of_attempt[name])

    def _index(self, now_ms: int) -> int:
        return max((now_ms - self._began_ms) // self._step_ms, len(self._executors) - 1)

    def _halve(self) -> None:
        self._step_ms *= 2
        self._executors = [max(pair) for pair in _pairs(self._executors)]
        self._sums = {name: [max(pair) for pair in _pairs(values)] for name, values in self._sums.items()}


def _pairs(values: list[int]) -> Iterable[list[int]]:
    return (values[index : index + 2] for index in range(0, len(values), 2))
