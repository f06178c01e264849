"""Executors whose disk is full, found by the errors of failed tasks in a status store whose answers tests set."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from emberkeep.spark.work.decoding import Report
from emberkeep.spark.work.full_disks import FullDisks

WRITES = "\n\tat java.base/sun.nio.ch.FileDispatcherImpl.write0"
TASK = "\n\tat org.apache.spark.shuffle.ShuffleWriteProcessor.write\n\tat org.apache.spark.scheduler.Task.run"
SHUFFLES = "\n\tat org.apache.spark.storage.TimeTrackingOutputStream.write"
STORES = "\n\tat org.apache.hadoop.fs.RawLocalFileSystem.write\n\tat org.apache.spark.sql.execution.Sink.write"
OF_JVM = f"java.io.IOException: No space left on device{WRITES}{SHUFFLES}{TASK}"
OF_CAUSE = f"org.apache.spark.SparkException: Job aborted{STORES}\nCaused by: {OF_JVM}"
OF_PYTHON = (
    'Traceback (most recent call last):\n  File "/opt/pyspark/shuffle.py", line 1\n'
    f"OSError: [Errno 28] No space left on device\n\tat org.apache.spark.api.python.BasePythonRunner.read{TASK}"
)
OF_QUOTA = f"java.io.IOException: Disk quota exceeded{WRITES}{SHUFFLES}"
OF_SINK = f"java.io.IOException: No space left on device{WRITES}{STORES}{TASK}"
OF_SCRIPT = OF_PYTHON.replace("/opt/pyspark/shuffle.py", "/opt/app.py")


class Failures:
    """The failed tasks of each active stage. ``asked``: the stages that were asked for."""

    def __init__(self) -> None:
        self.tasks: dict[int, list[Report]] = {}
        self.asked: list[int] = []

    def fail(self, stage: int, executor: str, message: str | None = OF_JVM) -> None:
        number = sum(map(len, self.tasks.values()))
        failed = {"taskId": number, "executorId": executor, "errorMessage": message}
        self.tasks.setdefault(stage, []).append(failed)

    def active_stages(self) -> tuple[int, Sequence[Report]]:
        stages = [{"stageId": key, "numFailedTasks": len(tasks)} for key, tasks in self.tasks.items()]
        return len(stages), stages

    def failed_tasks(self, stage_id: int, stage_attempt: int) -> Sequence[Report]:
        assert stage_attempt == 0
        self.asked.append(stage_id)
        return self.tasks[stage_id]


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (OF_JVM, {"1"}),
        (OF_PYTHON, {"1"}),
        (OF_CAUSE, {"1"}),
        (OF_QUOTA, {"1"}),
        (OF_SINK, set()),
        (OF_SCRIPT, set()),
        ("java.lang.ArithmeticException: / by zero", set()),
        (None, set()),
    ],
)
def test_a_task_that_found_no_space_points_to_its_executor(message: str | None, found: set[str]) -> None:
    store, disks = Failures(), FullDisks()
    store.fail(4, "1", message)
    assert disks.read(store, 1) == found


def test_a_failure_is_found_once_and_later_ones_again() -> None:
    store, disks = Failures(), FullDisks()
    store.fail(4, "1")
    store.fail(5, "2")
    assert disks.read(store, 2) == {"1", "2"}
    assert disks.read(store, 2) == frozenset()
    store.fail(4, "1")
    assert disks.read(store, 3) == {"1"}


def test_a_failure_that_spark_counts_before_it_lists_it_is_found_all_the_same() -> None:
    store, disks = Failures(), FullDisks()
    assert disks.read(store, 1) == frozenset()
    store.fail(4, "1")
    assert disks.read(store, 1) == {"1"}


def test_spark_is_not_asked_while_no_task_fails() -> None:
    store, disks = Failures(), FullDisks()
    store.tasks[3] = []
    store.fail(4, "1", "another error")
    for _ in range(3):
        disks.read(store, 1)
    assert store.asked == [4, 4]
