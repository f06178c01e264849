"""Find the executors whose disk is full by the errors of tasks that have failed there.

Spark writes shuffle files, spilled data and cached blocks to the executor's disk. A task that finds no space fails, and
Spark may try it again in the same executor until the job fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from emberkeep.spark.work.decoding import Report

_WORDS = ("no space left on device", "disk quota exceeded")  # of the C library, in lower case
_FRAME_OF_SPARK = "at org.apache.spark."
_OWN_FILES = tuple(f"{_FRAME_OF_SPARK}{package}." for package in ("shuffle", "storage", "memory", "io", "util"))
_SPILLS_OF_PYTHON = "pyspark/shuffle.py"


class FailedTasks(Protocol):
    """The failed tasks in the status store of one application, see ``StatusStore``."""

    def active_stages(self) -> tuple[int, Sequence[Report]]: ...

    def failed_tasks(self, stage_id: int, stage_attempt: int) -> Sequence[Report]: ...


class FullDisks:
    """Remembers which failed tasks of the active stages are known. Only one thread may use it."""

    def __init__(self) -> None:
        self._failed = 0
        self._is_changing = False
        self._known: set[tuple[str, int]] = set()  # executors, and tasks of the active stages

    def read(self, store: FailedTasks, failed: int) -> frozenset[str]:
        """Return the executors in which tasks of active stages have failed since the last call because of a full disk.

        ``failed``: number of tasks that have failed so far. Unless it has changed, Spark is not asked. Raises what
        ``store`` raises.
        """
        has_changed = failed != self._failed
        if not (has_changed or self._is_changing):
            return frozenset()
        tasks = {
            (str(task["executorId"]), int(task["taskId"]))
            for stage in store.active_stages()[1]
            if int(stage.get("numFailedTasks", 0))
            for task in store.failed_tasks(int(stage["stageId"]), int(stage.get("attemptId", 0)))
            if _is_about_space(str(task.get("errorMessage") or ""))
        }
        news = tasks - self._known
        # Spark counts a failure of an executor and of its stage one after the other: look once more after a change.
        self._failed, self._is_changing, self._known = failed, has_changed, tasks
        return frozenset(executor for executor, _ in news)


def _is_about_space(message: str) -> bool:
    """True if Spark itself found no space for a file of its own, and not for a result, a checkpoint or a user's file.

    Of the frames below the message, the first one of Spark says whose file it was.
    """
    lines = message.split("\n")
    for number, line in enumerate(lines):
        lowered = line.lower()
        if any(words in lowered for words in _WORDS):
            frames = (each.strip() for each in lines[number + 1 :])
            first = next((frame for frame in frames if frame.startswith(_FRAME_OF_SPARK)), "")
            if first.startswith(_OWN_FILES) or any(_SPILLS_OF_PYTHON in each for each in lines[:number]):
                return True
    return False
