"""An executor whose Python workers take more memory than it was given is ended, and the job says why.

The task manager sees that itself, or the kernel does in a control group. The latter is skipped where this process may
not make control groups.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.adapters.cgroups.opening import open_groups
from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until

pytestmark = [pytest.mark.integration, pytest.mark.long]

# Its first task takes 1.5 GiB in a Python worker and keeps it until a file is there. The kernel may end that worker
# only; what Spark then tries in the same executor waits for the end of the rest.
SCRIPT = """
import os, sys, time
from pathlib import Path
from pyspark.sql import SparkSession

place = Path(sys.argv[1])
context = SparkSession.builder.getOrCreate().sparkContext

def greedy(_):
    if (place / "took").exists():
        while (place / "took").read_text() == os.getcwd():
            time.sleep(0.1)
        return 1
    (place / "took").write_text(os.getcwd())
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


WATCHED = "MiB of memory with all that it has started, and was given"
BY_KERNEL = "the kernel ended a process in its control group, because it needed more than the"


@pytest.fixture(params=["off", "required"])
def cgroups(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    setting = str(request.param)
    if setting != "off":
        opened = open_groups("auto", tmp_path, 1)
        opened.groups.close()
        if opened.why_none:
            pytest.skip(f"no control groups can be made here: {opened.why_none}")
    return setting


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path, cgroups: str) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path, class_archive.parent))
    limits = ("-D", "taskmanager.memory.limit=always", "-D", f"taskmanager.cgroups={cgroups}")
    try:
        cluster.up(*QUICK, "--slots", "1", "--memory", "4g", *limits)
        yield cluster
        cluster.cancel_all()
    finally:
        cluster.close()


def test_a_greedy_executor_is_replaced_and_its_end_is_explained(cluster: Cluster, tmp_path: Path, cgroups: str) -> None:
    script = cluster.shell.write("greedy.py", SCRIPT)
    job_id = cluster.submit(script, arguments=(str(tmp_path),))
    job = cluster.wait_for_end(job_id)
    assert job.emberkeep.attempt == 1
    assert cluster.output(job_id) == "tasks 2\n", "another executor has done both"
    told = cluster.shell.done("events", "-o", "json", job_id).out
    assert (f"{WATCHED} 896 MiB" if cgroups == "off" else f"{BY_KERNEL} 896 MiB") in told, told
    (task_manager,) = json.loads(cluster.shell.done("taskmanagers", "-o", "json").out)
    in_force = task_manager["emberkeep"]["cgroups"]
    assert in_force.endswith("memory, and CPU by cores") if cgroups == "required" else in_force.startswith("none: ")


def test_a_greedy_driver_is_restarted_and_its_end_is_explained(cluster: Cluster, tmp_path: Path, cgroups: str) -> None:
    script = cluster.shell.write("greedy.py", DRIVER)
    job_id = cluster.submit(script, arguments=(str(tmp_path),))
    until(lambda: cluster.job(job_id).emberkeep.attempt == 2, lambda: cluster.story(job_id))
    first = cluster.wait_for_end(job_id, JobStatus.FINISHED).emberkeep.attempts[0]
    assert (WATCHED if cgroups == "off" else BY_KERNEL) in first.root_cause, first
