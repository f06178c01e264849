"""The lab's hosts have a network of their own, on which planned faults strike what is between two members."""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaign.processes.cluster import Member, RealCluster
from campaign.processes.hosts import Hosts
from campaign.processes.network_strikes import NetworkStrikes
from campaign.processes.plan import NETWORK_KINDS, PlannedFault
from campaign.processes.transfers.hits import Hit
from campaign.processes.transfers.running import RunningTransfers
from tests.integration.hosts.requirements import why_not

pytestmark = [pytest.mark.integration]

PORT = 4711
NO_TRANSFERS = RunningTransfers(RealCluster(Path("never started")), {})
SECONDS = 1.0  # until a connection counts as impossible
SERVER = """
import socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
while True:
    server.accept()[0].close()
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    return Hosts(tmp_path / "hosts", ["jm-1", "tm-1"])


@contextlib.contextmanager
def serving(hosts: Hosts, name: str) -> Iterator[None]:
    """Run a server on a host."""
    with hosts.inside(name):
        words = [sys.executable, "-c", SERVER, hosts.address(name), str(PORT)]
        server = subprocess.Popen(words, stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield
    finally:
        server.kill()
        server.communicate()


async def reaches(hosts: Hosts, name: str) -> bool:
    """True if the clients can connect to a host."""
    try:
        async with asyncio.timeout(SECONDS):
            _, writer = await asyncio.open_connection(hosts.address(name), PORT)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


def test_a_fault_lasts_and_ends_and_leaves_the_other_members_alone(hosts: Hosts) -> None:
    async def play() -> None:
        async def choose(_: str, __: random.Random) -> list[Member]:
            return [Member("jm-1", "jobmanager")]

        strikes = NetworkStrikes(hosts, choose, NO_TRANSFERS)
        with serving(hosts, "jm-1"), serving(hosts, "tm-1"):
            assert await reaches(hosts, "jm-1")
            for kind in ("cut: leader", "cut one way: leader"):
                striking = asyncio.create_task(strikes.strike(PlannedFault(0.0, kind, 0, 600.0), FromAll()))
                while await reaches(hosts, "jm-1"):
                    assert not striking.done()
                assert await reaches(hosts, "tm-1")
                striking.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await striking
                assert await reaches(hosts, "jm-1"), kind

    with hosts:
        asyncio.run(play())


def test_every_fault_of_the_network_can_be_applied(hosts: Hosts) -> None:
    async def play() -> list[Hit]:
        async def choose(what: str, _: random.Random) -> list[Member]:
            return [Member("tm-1" if what == "task manager" else "jm-1", "any")]

        strikes = NetworkStrikes(hosts, choose, NO_TRANSFERS)
        with serving(hosts, "jm-1"), serving(hosts, "tm-1"):
            hit = [
                await strikes.strike(PlannedFault(0.0, kind, number, 0.01), random.Random(number))
                for number, kind in enumerate(NETWORK_KINDS)
            ]
            assert await reaches(hosts, "jm-1")
            assert await reaches(hosts, "tm-1")
        return hit

    with hosts:
        assert all(hit.target for hit in asyncio.run(play()))


class FromAll(random.Random):
    """Draws faults between a member and all others, outwards."""

    def random(self) -> float:
        return 0.0
