"""Twenty jobs of every kind leave no more files than there were before, wherever they may write."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.stateful import SCRIPT, StatefulQueries

pytestmark = [pytest.mark.integration, pytest.mark.long]

LOCAL = ("-D", "state.backend.local-recovery=true")
NODES = ("127.0.0.2", "127.0.0.3")
# Logs are kept by number and age (taskmanager.log.retained-jobs), their copies in the storage and events as long as
# their jobs; the others are the test's own.
# The storage's list of deletions is one file, whatever runs.
KEPT = (
    "state/emberkeep/storage/.emberkeep-deletions",
    "command-*",
    "work/*",
    "queries-*",
    "state/emberkeep/taskmanagers/*/logs/jobs/*",
    "state/emberkeep/storage/events/*",
    "state/emberkeep/storage/logs/*",
)

PLAIN = """
import tempfile
with tempfile.NamedTemporaryFile() as file:
    file.write(b"x")
print("done", flush=True)
"""

BATCH = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
print("rows", spark.range(1000).repartition(4).count(), flush=True)
"""


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path, class_archive.parent))
    try:
        delays = ("high-availability.storage.ended-delay=5s", "high-availability.storage.event-log-delay=5s")
        retention = ("-D", "blob.retention.interval=5s", *("-D", delays[0]), *("-D", delays[1]))
        cluster.up("--nodes", ",".join(NODES), "--slots", "1", "--memory", "4g", *QUICK, *LOCAL, *retention)
        yield cluster
    finally:
        cluster.close()


def files(cluster: Cluster, jobs: Collection[str] = ()) -> set[str]:
    """Every file in the directories of the cluster, of its users and for what is temporary, and what is named by one of
    ``jobs``."""
    root = str(cluster.shell.directory)
    found: set[str] = set()
    for directory, folders, names in os.walk(root):  # which does not mind that directories go meanwhile
        names += [name for name in folders if any(job_id in name for job_id in jobs)]
        found.update(f"{directory}/{name}".removeprefix(f"{root}/") for name in names)
    return {name for name in found if not any(fnmatch(name, pattern) for pattern in KEPT)}


def run_stateful(cluster: Cluster) -> list[JobId]:
    """Two streaming queries with state at once, of which one finishes and the other is cancelled."""
    queries = [StatefulQueries(cluster.shell.directory / f"queries-{kind}", kind) for kind in ("sums", "joined")]
    jobs = [cluster.submit("stateful.py", arguments=query.arguments) for query in queries]
    for job_id, query in zip(jobs, queries, strict=True):
        cluster.wait_for(job_id, lambda _, query=query: query.batches() >= 3, "three batches")  # type: ignore[misc]
    queries[0].finish()
    cluster.cancel(jobs[1])
    cluster.wait_for_end(jobs[0])
    cluster.wait_for_end(jobs[1], JobStatus.CANCELED)
    return jobs


@pytest.mark.req("LOC-4", "LOC-5")
def test_twenty_jobs_leave_nothing(cluster: Cluster) -> None:
    shell = cluster.shell
    for name, script in (("stateful.py", SCRIPT), ("plain.py", PLAIN), ("batch.py", BATCH)):
        shell.write(name, script)
    before = files(cluster)
    with shell.traces.watching():
        stateful = run_stateful(cluster)
        others = [cluster.submit(script) for script in ["batch.py"] + ["plain.py"] * 17]
        for job_id in others:
            cluster.wait_for_end(job_id)
        cluster.wait_until_idle()

        def left() -> list[str]:
            return sorted(files(cluster, stateful + others) - before)

        until(lambda: not left(), lambda: "nothing is left of:\n" + "\n".join(left()))
    assert not shell.traces.strays
