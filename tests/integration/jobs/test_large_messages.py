"""A job whose configuration is tens of MiB: submitted, started, restarted and ended on a real cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from emberkeep.base.ids import JobId
from emberkeep.client.rest_client import RestClient
from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import QUICK, Cluster, kill_process
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.support.live_files import files_below

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("BLOB-19")]

SIZE = 32 * 1024**2
SCRIPT = """
import pathlib, sys, time
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.1)
print("ran")
"""


SPARK_SCRIPT = """
from pyspark.sql import SparkSession
print(SparkSession.builder.getOrCreate().sparkContext.parallelize(range(4), 2).sum())
"""


@pytest.fixture
def cluster(shell: Shell) -> Iterator[Cluster]:
    cluster = Cluster(shell)
    try:
        yield cluster
    finally:
        cluster.close()


def test_a_job_with_a_configuration_of_32_mib(cluster: Cluster) -> None:
    shell, go = cluster.shell, cluster.shell.work / "go"
    cluster.up("--nodes", "127.0.0.2,127.0.0.3", *QUICK)
    properties = shell.write("large.conf", f"spark.large {'x' * SIZE}\n")
    restart = ("-D", "restart-strategy.type=fixed-delay", "-D", "restart-strategy.fixed-delay.delay=100ms")
    job_id = cluster.submit(
        shell.write("app.py", SCRIPT), "--properties-file", str(properties), *restart, arguments=(str(go),)
    )
    kill_process(cluster.wait_for_driver(job_id))
    cluster.wait_for_driver(job_id, attempt=2)
    # Each attempt's StartDriver was acknowledged, so nobody holds it any more.
    assert cluster.ask(lambda client: _message_holders(client, job_id)) == []
    go.touch()
    cluster.wait_for_end(job_id, JobStatus.FINISHED)

    assert shell.done("logs", job_id).out == "ran\n"
    offloaded = _events(shell, "rpc_offloaded")
    assert [event["owner"] for event in offloaded if event["kind"] == "StartDriver"] == [job_id] * 2
    assert all(event["bytes"] > SIZE for event in offloaded)
    until(lambda: not _files_of(shell, job_id), lambda: f"left behind: {_files_of(shell, job_id)}")


def test_a_cluster_where_nearly_every_message_is_off_loaded(cluster: Cluster) -> None:
    """From and to JobManager, task managers and drivers, requests and replies: whatever is said goes through BLOBs."""
    shell = cluster.shell
    cluster.up("--nodes", "127.0.0.2,127.0.0.3", *QUICK, "-D", "rpc.offload.min-size=100")
    job_id = cluster.submit(shell.write("app.py", SPARK_SCRIPT), executors=2)
    cluster.wait_for_end(job_id, JobStatus.FINISHED)

    assert shell.done("logs", job_id).out == "6\n"
    assert {event["kind"] for event in _events(shell, "rpc_offloaded")} >= {"StartDriver", "AllocateSlot"}
    # Heartbeats go on, so that one of them may be on its way at any time, but none of those that are seen now.
    seen = set(cluster.ask(lambda client: _message_holders(client, None)))
    until(
        lambda: not seen & set(cluster.ask(lambda client: _message_holders(client, None))),
        lambda: f"not acknowledged: {cluster.ask(lambda client: _message_holders(client, None))}",
    )


async def _message_holders(client: RestClient, job_id: JobId | None) -> list[str]:
    blobs = (await client.blobs.all(job_id)).blobs
    return [name for blob in blobs for name in blob.references if name.startswith("message-")]


def _events(shell: Shell, name: str) -> list[dict[str, Any]]:
    """What the JobManager has logged under that name."""
    lines = (shell.state / "jobmanager" / "logs" / "jobmanager.log").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == name]


def _files_of(shell: Shell, job_id: JobId) -> list[str]:
    """What the job still has in the BLOB server's two stores."""
    roots = (shell.state / "jobmanager" / "blobs", shell.state / "storage" / "blobs")
    return sorted(str(path) for path in files_below(*roots) if path.parent.name == job_id)
