"""Two jobs with barrier stages of real Spark, for which there is room one after the other only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import Cluster, roomy_cluster
from tests.integration.conditions import until

pytestmark = [pytest.mark.integration, pytest.mark.long]

SLOTS, GANG = 4, 3
# All tasks of the stage run at once, each in an executor of its own, or none does.
SCRIPT = f"""
import os, sys, time
from pathlib import Path
from pyspark import BarrierTaskContext, SparkContext

def together(rows):
    BarrierTaskContext.get().barrier()
    while not Path(place).exists():
        time.sleep(0.1)
    yield os.getppid()

place = sys.argv[1]
context = SparkContext.getOrCreate()
found = context.parallelize(range({GANG}), {GANG}).barrier().mapPartitions(together).collect()
print("together", len(set(found)), flush=True)
"""


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    with roomy_cluster(tmp_path, class_archive, SLOTS) as cluster:
        yield cluster


@pytest.mark.req("RES-4")
def test_two_jobs_that_need_all_their_executors_at_once_do_not_hold_half_each(cluster: Cluster) -> None:
    go = cluster.shell.work / "go"
    script = cluster.shell.write("together.py", SCRIPT)
    jobs = [cluster.submit(script, "-D", "job.gang=true", arguments=(str(go),), executors=GANG) for _ in range(2)]

    def held(job_id: JobId) -> int:
        return len(cluster.job(job_id).emberkeep.executors)

    def story() -> str:
        return "\n".join(map(cluster.story, jobs))

    def one_has_all() -> JobId | None:
        for first, second in (jobs, jobs[::-1]):
            if held(first) == GANG and "needed at once (job.gang)" in cluster.job(second).emberkeep.waiting:
                return second
        return None

    waits = until(one_has_all, story)
    (runs,) = set(jobs) - {waits}
    cluster.wait_for(runs, lambda job: job.emberkeep.active_stages, "the barrier stage runs")
    assert held(waits) == 0, "it holds nothing that the other could use"
    go.touch()
    for job_id in jobs:
        cluster.wait_for_end(job_id, JobStatus.FINISHED)
        assert cluster.output(job_id) == f"together {GANG}\n", story()
        assert cluster.job(job_id).emberkeep.attempt == 1
