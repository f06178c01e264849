"""An executor whose Python workers take more memory than it was given is ended, and the job says why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until

pytestmark = [pytest.mark.integration, pytest.mark.long]

# Its first task takes 1.5 GiB in a Python worker and keeps it until a file is there.
SCRIPT = """
import os, sys, time
from pathlib import Path
from pyspark.sql import SparkSession

place = Path(sys.argv[1])
context = SparkSession.builder.getOrCreate().sparkContext

def greedy(_):
    if (place / "took").exists():
        return 1
    (place / "took").touch()
    held = os.urandom(1 << 20) * 1536
    while not (place / "enough").exists():
        time.sleep(0.1)
    return len(held)

print("tasks", sum(context.parallelize(range(2), 2).map(greedy).collect()), flush=True)
"""
DRIVER = """
import os, sys, time
from pathlib import Path
if (Path(sys.argv[1]) / "took").exists():
    sys.exit(0)
(Path(sys.argv[1]) / "took").touch()
held = [os.urandom(1 << 20) for _ in range(1536)]  # in small steps: its heartbeats go on
while True:
    time.sleep(0.1)
"""


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path, class_archive.parent))
    try:
        cluster.up(*QUICK, "--slots", "1", "--memory", "4g", "-D", "taskmanager.memory.limit=always")
        yield cluster
        cluster.cancel_all()
    finally:
        cluster.close()


def test_a_greedy_executor_is_replaced_and_its_end_is_explained(cluster: Cluster, tmp_path: Path) -> None:
    script = cluster.shell.write("greedy.py", SCRIPT)
    job_id = cluster.submit(script, arguments=(str(tmp_path),))
    job = cluster.wait_for_end(job_id)
    assert job.emberkeep.attempt == 1
    assert cluster.output(job_id) == "tasks 2\n", "another executor has done both"
    told = cluster.shell.done("events", "-o", "json", job_id).out
    assert "MiB of memory with all that it has started, and was given 896 MiB" in told, told


def test_a_greedy_driver_is_restarted_and_its_end_is_explained(cluster: Cluster, tmp_path: Path) -> None:
    script = cluster.shell.write("greedy.py", DRIVER)
    job_id = cluster.submit(script, arguments=(str(tmp_path),))
    until(lambda: cluster.job(job_id).emberkeep.attempt == 2, lambda: cluster.story(job_id))
    first = cluster.wait_for_end(job_id, JobStatus.FINISHED).emberkeep.attempts[0]
    assert "MiB of memory with all that it has started, and was given" in first.root_cause, first
