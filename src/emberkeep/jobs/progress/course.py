"""How many tasks a job had done, and how many executors it had, over its whole time. Pure.

A job may last for months, so the samples become coarser as it lasts: once there are too many, each two become one.
"""

from __future__ import annotations

from collections.abc import Iterable

from emberkeep.base.compatible import Compatible

SAMPLES_KEPT = 120
FIRST_STEP_MS = 10_000


class Course(Compatible, frozen=True, kw_only=True):
    """Samples of a job, oldest first: one for each ``step_ms`` from ``began_ms`` on, at most SAMPLES_KEPT.

    ``tasks``: done by all attempts until the end of the interval. ``executors``: the most that there were in it.
    """

    began_ms: int
    step_ms: int = FIRST_STEP_MS
    tasks: tuple[int, ...] = ()
    executors: tuple[int, ...] = ()

    @property
    def newest_ms(self) -> int:
        """When the newest interval begins."""
        return self.began_ms + max(0, len(self.tasks) - 1) * self.step_ms

    @property
    def is_well_formed(self) -> bool:
        """True if this may have been recorded."""
        return len(self.tasks) == len(self.executors) <= SAMPLES_KEPT and self.step_ms > 0


class CourseLog:
    """The course of a job, which the newest attempt records.

    The job's tasks are those of its earlier attempts, which ``continue_from`` says, and those of the attempt. Times are
    Unix milliseconds; one that is before the newest interval counts as in it.
    """

    def __init__(self) -> None:
        self._began_ms = 0
        self._step_ms = FIRST_STEP_MS
        self._tasks: list[int] = []
        self._executors: list[int] = []
        self._before = 0  # tasks that earlier attempts have done

    def note(self, tasks: int, executors: int, now_ms: int) -> None:
        """Note how many tasks the attempt has done, and how many executors it has."""
        self._put(self._before + tasks, executors, now_ms)

    def continue_from(self, earlier: Course) -> None:
        """Put what earlier attempts have recorded in front."""
        own = self.course()
        self._began_ms, self._step_ms = earlier.began_ms, earlier.step_ms
        self._tasks, self._executors = list(earlier.tasks), list(earlier.executors)
        self._before = max(earlier.tasks, default=0)
        if own is not None:
            for index, (tasks, executors) in enumerate(zip(own.tasks, own.executors, strict=True)):
                self._put(self._before + tasks, executors, own.began_ms + index * own.step_ms)

    def course(self) -> Course | None:
        """Return what is known; None if nothing is."""
        if not self._tasks:
            return None
        return Course(
            began_ms=self._began_ms,
            step_ms=self._step_ms,
            tasks=tuple(self._tasks),
            executors=tuple(self._executors),
        )

    def _put(self, tasks: int, executors: int, now_ms: int) -> None:
        if not self._tasks:
            self._began_ms = now_ms
        index = max((now_ms - self._began_ms) // self._step_ms, len(self._tasks) - 1)
        while index >= SAMPLES_KEPT:
            self._halve()
            index = max((now_ms - self._began_ms) // self._step_ms, len(self._tasks) - 1)
        while len(self._tasks) < index:  # no attempt ran, or Spark did not answer
            self._tasks.append(self._tasks[-1] if self._tasks else 0)
            self._executors.append(0)
        if index == len(self._tasks):
            self._tasks.append(tasks)
            self._executors.append(executors)
        else:
            self._tasks[index] = max(self._tasks[index], tasks)
            self._executors[index] = max(self._executors[index], executors)

    def _halve(self) -> None:
        self._step_ms *= 2
        self._tasks = [max(pair) for pair in _pairs(self._tasks)]
        self._executors = [max(pair) for pair in _pairs(self._executors)]


def _pairs(values: list[int]) -> Iterable[list[int]]:
    return (values[index : index + 2] for index in range(0, len(values), 2))
