"""Flink's own command line lists, stops and cancels jobs, makes and disposes of savepoints, and learns of failures."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from emberkeep.client.clusters.discovery import local_endpoint
from emberkeep.jobs.model import JobStatus
from emberkeep.spark.java import find_java
from tests.integration.client.flink_client import FlinkClient
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.streams import SCRIPT, Stream
from tools import flink_jar

pytestmark = [pytest.mark.integration, pytest.mark.long]

GATED = """
import sys, time
from pathlib import Path
while not Path(sys.argv[1]).exists():
    time.sleep(0.1)
"""


@pytest.fixture
def cluster(shell: Shell) -> Iterator[Cluster]:
    cluster = Cluster(shell)
    try:
        cluster.up(*QUICK, "--slots", "2", "-D", "taskmanager.driver-places=1")
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def flink(cluster: Cluster, tmp_path: Path) -> FlinkClient:
    endpoint = local_endpoint(cluster.record, cluster.shell.state)
    java = find_java(os.environ).executable
    jar = flink_jar.kept()
    assert jar is not None, "`make flink` fetches it"
    address, ca = urlsplit(endpoint.url).netloc, Path(endpoint.ca)
    client = FlinkClient(java, jar, tmp_path / "flink", address, endpoint.token, ca)
    client.trust()
    return client


def listed(flink: FlinkClient, *options: str) -> dict[str, str]:
    """State of each job that ``flink list`` shows."""
    return dict(re.findall(r" : ([0-9a-f]{32}) : .* \((\w+)\)", flink.done("list", *options)))


def savepoint_of(output: str) -> str:
    found = re.search(r"Savepoint completed\. Path: (\S+)", output)
    assert found is not None, output
    return found[1].removeprefix("file:")


def test_every_command_of_flinks_own_client(cluster: Cluster, flink: FlinkClient, tmp_path: Path) -> None:
    assert listed(flink, "-a") == {}
    script = cluster.shell.write("stream.py", SCRIPT)
    stream = Stream(tmp_path / "stream")
    job = cluster.submit(script, arguments=(str(stream.place),))
    until(lambda: stream.batches() >= 2, lambda: cluster.story(job))
    assert listed(flink) == listed(flink, "-r") == listed(flink, "-a") == {job: "RUNNING"}

    savepoints = str(tmp_path / "savepoints")
    made = savepoint_of(flink.done("savepoint", job, savepoints))
    assert list(Path(made).iterdir())
    flink.done("savepoint", "-dispose", made)
    assert not Path(made).exists()

    # What fails is told, and ends the command: it does not ask for ever.
    for refused, named in (
        (flink.run("savepoint", job, "/proc/no-such-place"), "no-such-place"),
        (flink.run("stop", "-p", "/proc/no-such-place", job), "no-such-place"),
        (flink.run("savepoint", "-dispose", made), made),
    ):
        assert refused.code != 0
        assert named in refused.err, refused
    assert listed(flink) == {job: "RUNNING"}

    suspended = savepoint_of(flink.done("stop", "-p", savepoints, job))
    cluster.wait_for_end(job)
    assert listed(flink) == {}
    assert listed(flink, "-a") == {job: "FINISHED"}
    again = cluster.submit(script, "--from-savepoint", suspended, arguments=(str(stream.place),))
    before = stream.batches()
    until(lambda: stream.batches() > before, lambda: cluster.story(again))
    savepoint_of(flink.done("stop", "-d", "-p", savepoints, again))
    cluster.wait_for_end(again)

    gated = cluster.shell.write("gated.py", GATED)
    running, waiting = (cluster.submit(gated, arguments=(str(tmp_path / "gate"),)) for _ in range(2))
    cluster.wait_for_driver(running)
    assert listed(flink, "-r") == {running: "RUNNING"}
    assert listed(flink, "-s") == {waiting: "CREATED"}
    for each in (waiting, running):
        flink.done("cancel", each)
        cluster.wait_for_end(each, JobStatus.CANCELED)
    assert listed(flink, "-a") == {job: "FINISHED", again: "FINISHED", running: "CANCELED", waiting: "CANCELED"}
