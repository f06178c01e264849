"""A ZooKeeper with its own default of 60 connections for each address serves a node with any number of drivers."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from emberkeep.adapters.zookeeper.layout import ZooKeeperLayout, zookeeper_layout
from emberkeep.adapters.zookeeper.leader_locators import KnownLeader
from emberkeep.adapters.zookeeper.session import ZooKeeperSession
from emberkeep.adapters.zookeeper.store import ZooKeeperJobStore
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.ids import JobId, SystemIds
from emberkeep.daemons.leader_following import follow_leader, locate_by_file, locate_by_zookeeper, tell_drivers
from emberkeep.daemons.process_main import Services
from tests.integration.sites import Member, Site, holds, submitted
from tests.integration.zookeepers import TOKEN, Ensemble, connected, eventually, settings
from tests.support.memory_rpc import MemoryNetwork

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.req("SAFE-11")]

DRIVERS = 300
CONNECTIONS = re.compile(rb"^Connections: (\d+)", re.MULTILINE)


@pytest.fixture
async def ensemble(tmp_path: Path) -> AsyncIterator[Ensemble]:
    ensemble = Ensemble(tmp_path / "zookeeper")
    await ensemble.start()
    yield ensemble
    ensemble.stop()


class Driver:
    """What a driver is to its leader, without a script."""

    def __init__(self) -> None:
        self.job_manager = ""
        self.on_silence = lambda: None

    def follow(self, job_manager: str) -> None:
        self.job_manager = job_manager


async def connections(hosts: str) -> int:
    """Of clients, without the one that asks."""
    host, _, port = hosts.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"srvr")
    found = CONNECTIONS.search(await reader.read())
    writer.close()
    assert found is not None
    return int(found[1]) - 1


async def leads(stack: contextlib.AsyncExitStack, hosts: str, layout: ZooKeeperLayout, graphs: Path, name: str) -> None:
    session = ZooKeeperSession(settings(hosts))
    session.start()
    stack.push_async_callback(session.close)
    store = ZooKeeperJobStore(await connected(session), layout, graphs, SystemIds(), address=name, elected=True)
    await store.open()


async def test_three_hundred_drivers_of_a_node_follow_over_one_session(ensemble: Ensemble, tmp_path: Path) -> None:
    configuration = Configuration().with_texts(
        {"high-availability.type": "zookeeper", "high-availability.zookeeper.quorum": ensemble.hosts}, "test"
    )
    layout, services, path = zookeeper_layout(configuration), Services(), tmp_path / "leader.record"
    network, task_manager, drivers = MemoryNetwork(), Driver(), [Driver() for _ in range(DRIVERS)]

    def all_follow(leader: str) -> bool:
        return all(each.job_manager == leader for each in (task_manager, *drivers))

    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(services.cancel)
        known = locate_by_zookeeper(configuration, TOKEN, services, stack)
        await tell_drivers(path, known, services)
        follow_leader(known, task_manager, network, services, is_informed=lambda: known.is_informed)
        for driver in drivers:
            located: KnownLeader = locate_by_file(path, services)
            follow_leader(located, driver, network, services, is_informed=lambda: True)
        for number, leader in enumerate(("jm-1:1", "jm-2:1"), 1):
            await leads(stack, ensemble.hosts, layout, tmp_path / "graphs", leader)
            await eventually(lambda leader=leader: all_follow(leader), f"all follow {leader}")  # type: ignore[misc]
            assert await connections(ensemble.hosts) == 1 + number  # the task manager's and the leaders'


@pytest.mark.long
async def test_a_driver_follows_without_a_session_and_its_task_manager_without_zookeeper(
    ensemble: Ensemble, tmp_path: Path
) -> None:
    site = Site(tmp_path, ensemble)
    try:
        first = await site.add_job_manager()
        await holds(lambda: site.leads(first), "the first leads")
        second = await site.add_job_manager()
        to_zookeeper = await site.add_task_manager()
        gate = tmp_path / "gate"
        job_id = JobId(str(await holds(lambda: submitted(site, first, gate), "a job is accepted")))
        pid = await holds(lambda: site.runs(first, job_id), "the job runs")
        assert isinstance(pid, int)
        ports = {int(address.rpartition(":")[2]) for address in (ensemble.hosts, to_zookeeper.address)}
        connected_to = [each for each in psutil.Process(pid).net_connections() if each.status == "ESTABLISHED"]
        assert ports.isdisjoint(each.raddr.port for each in connected_to)

        first.to_zookeeper.cut()
        await holds(lambda: site.leads(second), "the second leads")
        await holds(lambda: site.runs(second, job_id, pid), "the driver follows its task manager")

        first.to_zookeeper.heal()
        await holds(lambda: stands_by(site, first), "the first has found out")
        to_zookeeper.cut()
        second.to_zookeeper.cut()  # it goes on answering: who asks nobody else stays with it
        await holds(lambda: site.leads(first), "the first leads again")
        await holds(lambda: site.runs(first, job_id, pid), "both have asked others")
        gate.touch()
        await holds(lambda: site.has_finished(first, job_id), "it ends in its first attempt")
    finally:
        await site.close()


async def stands_by(site: Site, member: Member) -> bool:
    return not await site.leads(member)
