"""A job takes standby processes that are in control groups, and its task manager is killed: its limits stay.

Skipped where this process may not make control groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.adapters.cgroups.mounts import groups_of
from emberkeep.adapters.cgroups.opening import open_groups
from emberkeep.slots.model import ProcessStart
from tests.integration.clusters import Cluster
from tests.integration.standbys.warm_cluster import starts, warm_cluster

pytestmark = [pytest.mark.integration, pytest.mark.long]

# A task waits for a file, and then takes 1.5 GiB in a Python worker, the first time. What Spark then tries in the same
# executor waits for its end.
SCRIPT = """
import os, sys, time
from pathlib import Path
from pyspark.sql import SparkSession

place = Path(sys.argv[1])
context = SparkSession.builder.getOrCreate().sparkContext

def greedy(_):
    while not (place / "go").exists():
        time.sleep(0.1)
    if (place / "took").exists():
        while (place / "took").read_text() == os.getcwd():
            time.sleep(0.1)
        return 1
    (place / "took").write_text(os.getcwd())
    held = os.urandom(1 << 20) * 1536
    while True:
        time.sleep(0.1)

print("tasks", sum(context.parallelize(range(2), 2).map(greedy).collect()), flush=True)
"""


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    opened = open_groups("auto", tmp_path, 1)
    opened.groups.close()
    if opened.why_none:
        pytest.skip(f"no control groups can be made here: {opened.why_none}")
    limits = ("-D", "taskmanager.memory.limit=always", "-D", "taskmanager.cgroups=required")
    cluster = warm_cluster(tmp_path, class_archive, ("127.0.0.2",), *limits)
    try:
        yield cluster
        cluster.cancel_all()
    finally:
        cluster.close()


def test_a_job_keeps_the_limits_of_what_it_took(cluster: Cluster, tmp_path: Path) -> None:
    job_id = cluster.submit(cluster.shell.write("greedy.py", SCRIPT), arguments=(str(tmp_path),))
    cluster.wait_for_executors(job_id)
    assert starts(cluster.job(job_id)) == (ProcessStart.HOT, {ProcessStart.HOT})
    driver = cluster.wait_for_driver(job_id)
    (name,) = (each.id for each in cluster.ask(lambda client: client.task_managers()))
    cluster.kill(name)
    cluster.up()
    assert str(groups_of(driver)).count("standby-"), "it goes on in the group that it was started in"
    (tmp_path / "go").touch()
    cluster.wait_for_end(job_id)
    assert cluster.output(job_id) == "tasks 2\n", "another executor has done both"
    told = cluster.shell.done("events", "-o", "json", job_id).out
    assert "the kernel ended a process in its control group, because it needed more than the 1408 MiB" in told, told
