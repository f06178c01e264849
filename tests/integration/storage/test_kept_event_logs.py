"""Event logs and progress outlive the checkpoints of their job, until their own time is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from emberkeep.adapters.shared_storage.event_logs import EVENT_LOGS
from emberkeep.adapters.shared_storage.progress_files import PROGRESS
from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.security.test_spark_ui import answer_of, browser_of

pytestmark = [pytest.mark.integration, pytest.mark.long]

STREAM = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("numPartitions", 1).load()
query = ticks.writeStream.format("noop").start()
while query.lastProgress is None:
    time.sleep(0.1)
if sys.argv[1] == "runs":
    while not Path(sys.argv[2]).exists():
        time.sleep(0.1)
query.stop()
sys.exit(sys.argv[1] == "fails")
"""
CHECKPOINTS_GO = ("-D", "high-availability.storage.ended-delay=1s")
EVENT_LOGS_GO = ("-D", "high-availability.storage.event-log-delay=1s")


def test_event_logs_and_progress_stay_longer_than_checkpoints_and_as_long_as_their_job_runs_or_has_failed(
    tmp_path: Path, class_archive: Path
) -> None:
    cluster, finish = Cluster(Shell(tmp_path, class_archive.parent)), tmp_path / "finish"
    everything = {"checkpoint", "log", "progress"}

    def kept(job_id: JobId) -> set[str]:
        """Return what the job has in the storage: "checkpoint", "log", "progress"."""
        found = (cluster.shell.state / "storage" / "checkpoints" / job_id).glob("*")
        return {{EVENT_LOGS: "log", PROGRESS: "progress"}.get(path.name, "checkpoint") for path in found}

    def spark_ui(job_id: JobId) -> tuple[int, str]:
        link = cluster.ask(lambda client: client.spark_uis.link(job_id)).url
        return answer_of(link, browser_of(cluster))

    def ended(how: str, status: JobStatus) -> JobId:
        job_id = cluster.submit("app.py", "-D", "restart-strategy.type=none", arguments=(how, str(finish)))
        cluster.wait_for_end(job_id, status)
        return job_id

    try:
        cluster.up(*QUICK, *CHECKPOINTS_GO)
        cluster.shell.write("app.py", STREAM)
        failed, finished = ended("fails", JobStatus.FAILED), ended("finishes", JobStatus.FINISHED)
        until(lambda: kept(finished) == {"log", "progress"}, lambda: f"the checkpoints go: {kept(finished)}")
        assert cluster.ask(lambda client: client.progress.read(finished)).records
        status, text = spark_ui(finished)
        assert (status, "Structured Streaming" in text) == (200, True), text[-3000:]

        cluster.shell.done("cluster", "down")
        cluster.up(*QUICK, *CHECKPOINTS_GO, *EVENT_LOGS_GO)
        until(lambda: not kept(finished), lambda: f"the event log goes: {kept(finished)}")
        status, text = spark_ui(finished)
        assert (status, "left no event log" in text) == (404, True), text[-3000:]
        running = cluster.submit("app.py", arguments=("runs", str(finish)))
        cluster.wait_for(running, lambda job: job.emberkeep.queries and kept(running) == everything, "a batch")
        other = ended("finishes", JobStatus.FINISHED)
        until(lambda: not kept(other), lambda: f"all of a job that has ended goes: {kept(other)}")
        assert kept(failed) == kept(running) == everything
        finish.touch()
        cluster.wait_for_end(running)
        until(lambda: not kept(running), lambda: f"all of the other job goes: {kept(running)}")
    finally:
        cluster.close()
