"""A node is lost with its disk. What its task manager has sent of the logs can still be searched and downloaded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.adapters.kept_logs.files import KeepLimits, KeptLogFiles
from emberkeep.client.calls.logs import job_log_path
from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until

pytestmark = [pytest.mark.integration]

SCRIPT = """
import logging, sys, time
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range(2).count()
for number in range(20_000):
    print(f"line {number:05d}")
sys.stdout.flush()
logging.error("it went wrong once")
print("unfinished", end="", flush=True)
time.sleep(600)
"""


@pytest.fixture
def cluster(shell: Shell) -> Iterator[Cluster]:
    cluster = Cluster(shell)
    try:
        cluster.up("--task-managers", "2", *QUICK, "-D", "logs.keep.interval=1s")
        yield cluster
    finally:
        cluster.close()


def test_logs_outlive_their_node(cluster: Cluster) -> None:
    shell = cluster.shell
    job_id = cluster.submit(shell.write("speak.py", SCRIPT))
    job = cluster.wait_for(job_id, lambda job: "unfinished" in cluster.output(job_id), "the script has written")
    lost = next(attempt.taskmanager_id for attempt in job.emberkeep.attempts if attempt.attempt == 1)
    directory = Path(cluster.daemon(lost).directory)
    own = {path.name: path for path in (directory / "logs" / "jobs" / job_id / "1").iterdir()}
    kept = KeptLogFiles(shell.state / "storage" / "logs", KeepLimits(most_bytes=1024**3, keep_ms=0))

    def is_kept() -> bool:
        """All whole lines of the driver are stored: nothing more is written."""
        ends = {log.key.name: log.end for log in kept.logs(job_id).logs if log.key.task_manager == lost}
        return all(
            ends.get(name, 0) >= own[name].read_bytes().rfind(b"\n") + 1 for name in ("driver.stdout", "driver.stderr")
        )

    until(is_kept, lambda: str(kept.logs(job_id)))
    written = {name: path.read_bytes() for name, path in own.items()}
    cluster.lose_node(lost)
    shutil.rmtree(directory)
    cluster.cancel(job_id)
    cluster.wait_for(job_id, lambda job: job.state is JobStatus.CANCELED, "the job is cancelled")
    until(lambda: lost not in {each.id for each in cluster.ask(lambda client: client.task_managers())}, "it is lost")

    logs = {log.name.rpartition("-")[2]: log for log in cluster.ask(lambda client: client.logs.of_job(job_id)).logs}
    stdout = logs["driver.stdout"]
    assert (stdout.taskmanager_id, stdout.kept, stdout.kept_until > 0) == (lost, True, True)
    lines = written["driver.stdout"].removesuffix(b"unfinished")
    assert cluster.shown(f"/v1{job_log_path(job_id, stdout.id)}/download").encode() == lines
    shown = shell.done("logs", job_id)
    assert shown.out.encode() == lines
    assert shown.err.count(f"task manager {lost} does not have these logs now") == 1
    assert written["driver.stderr"] in shown.err.encode()
    assert shell.done("logs", job_id, "--grep", "line 01234").out == "line 01234\n"
    assert "it went wrong once" in shell.done("logs", job_id, "--level", "error").out
    assert "it went wrong once" in shell.done("logs", job_id, "--merged").out
    assert shell.done("logs", "-f", job_id).out.encode() == lines
