"""One task of a real stage takes far longer than the others: who looks at the job sees it while the task runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.protocol.progress.rest_work import StageInfo
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until

pytestmark = [pytest.mark.integration, pytest.mark.long]

TASKS = 6
SCRIPT = f"""
import sys, time
from pathlib import Path
from pyspark import SparkContext

def work(number):
    time.sleep(0.3)
    while number == slow and not Path(place).exists():
        time.sleep(0.1)
    return number

place, slow = sys.argv[1], int(sys.argv[2])
print(SparkContext.getOrCreate().parallelize(range({TASKS}), {TASKS}).map(work).sum(), flush=True)
"""


@pytest.fixture
def cluster(shell: Shell) -> Iterator[Cluster]:
    cluster = Cluster(shell)
    try:
        cluster.up(*QUICK, "--slots", "1")
        yield cluster
    finally:
        cluster.close()


def test_a_stage_says_for_how_long_its_slow_task_has_run(cluster: Cluster, tmp_path: Path) -> None:
    go = tmp_path / "go"
    job_id = cluster.submit(cluster.shell.write("slow.py", SCRIPT), arguments=(str(go), str(TASKS - 1)))

    def is_awaited() -> bool:
        work = cluster.job(job_id).emberkeep.work
        # The first task is slow to begin. So the mean of all tasks, which counts for the job, is above the median.
        if work is None or work.time_left is not None:
            return False
        return any(stage.overdue and stage.finished == TASKS - 1 for stage in work.stages)

    until(is_awaited, lambda: cluster.story(job_id))
    work = cluster.job(job_id).emberkeep.work
    assert work is not None
    (stage,) = work.stages
    assert (stage.running, stage.time_left, work.time_left) == (1, None, None)
    assert stage.longest_running == stage.longest_duration > 2 * stage.median_duration > 0
    assert stage.skew is not None
    assert stage.skew > 2
    assert "unknown: a task has run for" in cluster.shown(f"/jobs/{job_id}")
    assert "unknown: a task has run for" in cluster.shell.done("info", job_id).out

    ran = stage.longest_running

    def has_run_on() -> bool:
        work = cluster.job(job_id).emberkeep.work
        return work is not None and work.stages[0].longest_running > ran + 1_000

    until(has_run_on, lambda: cluster.story(job_id))
    go.touch()
    ended = cluster.wait_for_end(job_id).emberkeep.work
    assert cluster.output(job_id) == f"{sum(range(TASKS))}\n"
    assert ended is not None
    (stage,) = ended.stages
    assert (stage.finished, stage.longest_running, stage.overdue) == (TASKS, 0, False)
    assert stage.longest_duration > ran


def test_the_typical_task_is_one_that_has_ended(cluster: Cluster, tmp_path: Path) -> None:
    """Spark counts a task that runs with its time at its start: a few milliseconds."""
    go = tmp_path / "go"
    job_id = cluster.submit(cluster.shell.write("slow.py", SCRIPT), arguments=(str(go), "1"))

    def measured() -> StageInfo | None:
        work = cluster.job(job_id).emberkeep.work
        return next((stage for stage in work.stages if stage.median_duration and stage.running), None) if work else None

    stage = until(measured, lambda: cluster.story(job_id))
    assert (stage.finished, stage.running) == (1, 1)
    assert stage.median_duration >= 300
    go.touch()
    cluster.wait_for_end(job_id)
