"""A file on its way between two of the lab's hosts takes long enough for a fault, and is seen."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from campaign.processes.cluster import Member
from campaign.processes.hosts import Hosts
from campaign.processes.transfers.hits import Transfer
from campaign.processes.transfers.running import RunningTransfers
from tests.integration.conditions import until
from tests.integration.hosts.requirements import why_not

pytestmark = [pytest.mark.integration]

PORT = 4712
BYTES = 2 * 1024**2
SENDER = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    print("ready", flush=True)
    while True:
        with server.accept()[0] as connection:
            connection.sendall(bytes(int(sys.argv[3])))
"""
RECEIVER = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection, open(sys.argv[3], "wb", 0) as file:
    file.write(connection.recv(65536))
    sys.stdin.read()
    while data := connection.recv(65536):
        file.write(data)
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    return Hosts(tmp_path / "hosts", ["jm-1", "tm-1"], slow=["tm-1"])


def on(hosts: Hosts, name: str, program: str, *arguments: object) -> subprocess.Popen[bytes]:
    """Start a program on a host."""
    with hosts.inside(name):
        words = [sys.executable, "-c", program, *map(str, arguments)]
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_a_file_is_on_its_way_for_a_while_also_after_faults_of_the_network(tmp_path: Path, hosts: Hosts) -> None:
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    with hosts:
        address = hosts.address("jm-1")
        with on(hosts, "jm-1", SENDER, address, PORT, BYTES) as sender:
            assert sender.stdout is not None
            assert sender.stdout.readline() == b"ready\n"
            sending: Any = SimpleNamespace(process=sender)
            cluster: Any = SimpleNamespace(
                job_managers=[Member("jm-1", "jobmanager", daemon=sending)],
                task_managers=[Member("tm-1", "taskmanager", daemon=sending)],
                is_running=lambda member: member.name == "jm-1",
                incoming=lambda _: incoming,
            )
            running = RunningTransfers(cluster, {name: hosts.address(name) for name in ("jm-1", "tm-1")})
            for number in range(2):
                file = incoming / str(number)
                with on(hosts, "tm-1", RECEIVER, address, PORT, file) as receiver:
                    until(running.now, "a part has arrived")
                    assert running.now() == [Transfer("jm-1", "tm-1")]
                    assert receiver.stdin is not None
                    receiver.stdin.close()
                assert file.stat().st_size == BYTES
                assert running.now() == []
                file.unlink()
                asyncio.run(hosts.heal())
            sender.kill()
