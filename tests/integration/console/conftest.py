"""A browser, and a cluster of two nodes with a slot each, for the tests of one file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from emberkeep.base.ids import JobId
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.console.browser import chromium
from tests.integration.console.logs import LOGGING
from tests.integration.streams import Stream

NODES = ("127.0.0.2", "127.0.0.3")
ALARMED = ("-D", "watchdog.restarts.max=1")  # the second kill of the driver raises an alarm


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path_factory.mktemp("console"), class_archive.parent))
    try:
        cluster.up("--nodes", ",".join(NODES), "--slots", "1", *QUICK)
        yield cluster
        cluster.cancel_all()
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def job_id(cluster: Cluster) -> JobId:
    """A stream that runs."""
    stream = Stream(cluster.shell.directory / "stream")
    cluster.shell.write("stream.py", LOGGING)
    job_id = cluster.submit("stream.py", *ALARMED, arguments=(str(stream.place),))
    cluster.wait_for_executors(job_id)
    until(lambda: stream.batches() >= 3, lambda: f"three batches: {cluster.story(job_id)}")
    return job_id
