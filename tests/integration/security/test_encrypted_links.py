"""A cluster with default settings: what takes the JobManager's port gets no token, and jobs run through TLS."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from emberkeep.base.errors import RetryLater
from emberkeep.client.clusters.discovery import local_endpoint
from emberkeep.client.rest_client import RestClient
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.support.certificates import cluster_tls

pytestmark = [pytest.mark.integration, pytest.mark.req("SEC-1"), pytest.mark.req("SEC-9")]

# Without Spark. Argument: a file; the script ends when it is there.
WAITS = """
import sys, time
from pathlib import Path

print("runs", flush=True)
while not Path(sys.argv[1]).exists():
    time.sleep(0.05)
print("ends", flush=True)
"""
COUNTS = """
from pyspark.sql import SparkSession

print("counted", SparkSession.builder.getOrCreate().range(1000).repartition(2).count(), flush=True)
"""


class Impostor:
    """Listens at a port that a server has left, and keeps the first bytes of every connection.

    ``tls``: its own, to read what callers encrypt for it. ``failures``: handshakes that callers have broken off.
    """

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.heard: list[bytes] = []
        self.failures: list[str] = []
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", port))
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(5.0)
                    self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        if self._tls is not None:
            try:
                connection = self._tls.wrap_socket(connection, server_side=True)
            except ssl.SSLError as error:
                self.failures.append(error.reason)
                return
        with connection:
            self.heard.append(connection.recv(65536))
            connection.sendall(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path, class_archive))
    cluster.up("--task-managers", "2", "--slots", "1", *QUICK)
    yield cluster
    cluster.close()


async def overview(cluster: Cluster) -> None:
    async with RestClient(local_endpoint(cluster.record, cluster.shell.state), patience=0) as client:
        await client.overview()


def test_what_takes_the_job_managers_port_gets_no_token(cluster: Cluster, tmp_path: Path) -> None:
    script, gate = tmp_path / "waits.py", tmp_path / "gate"
    script.write_text(WAITS)
    job = cluster.submit(script, arguments=(str(gate),))
    cluster.wait_for_driver(job)
    token = (cluster.shell.state / "token").read_bytes().strip()
    port = urlsplit(cluster.record.url).port
    assert port
    cluster.kill("jobmanager")
    with contextlib.closing(Impostor(port)) as impostor:
        # Task managers, the driver and a client try again and again.
        with pytest.raises(RetryLater, match="has not proven to be of the cluster"):
            asyncio.run(overview(cluster))
        until(lambda: len(impostor.heard) >= 10, lambda: f"callers: {len(impostor.heard)}")
    assert not [data for data in impostor.heard if token in data or b"HTTP" in data]
    with contextlib.closing(Impostor(port, cluster_tls(tmp_path / "its own CA").server)) as impostor:
        with pytest.raises(RetryLater, match="has no valid certificate of the cluster"):
            asyncio.run(overview(cluster))
        until(lambda: len(impostor.failures) >= 5, lambda: f"callers: {impostor.failures}")
    assert impostor.heard == []
    cluster.up()
    gate.touch()
    assert cluster.wait_for_end(job).emberkeep.attempt == 1
    assert cluster.output(job).split() == ["runs", "ends"]


@pytest.mark.long
def test_a_job_runs_through_encrypted_links(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "counts.py"
    script.write_text(COUNTS)
    job = cluster.submit(script, executors=2)
    cluster.wait_for_end(job)
    assert cluster.output(job).split() == ["counted", "1000"]
