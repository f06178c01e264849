"""Contenders over a real ZooKeeper: who leads, who follows, who finds out."""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from emberkeep.adapters.zookeeper import election as zookeeper_election
from emberkeep.adapters.zookeeper.election import Prober, ZooKeeperElection, probe
from emberkeep.adapters.zookeeper.layout import ZooKeeperLayout
from emberkeep.adapters.zookeeper.leader_locators import ZooKeeperLocator
from emberkeep.adapters.zookeeper.session import SessionState, ZooKeeperSession
from emberkeep.adapters.zookeeper.store import ZooKeeperJobStore
from emberkeep.base.ids import SystemIds
from emberkeep.jobmanager.contender import Contender
from emberkeep.leadership.model import LeaderAddress, Standing
from emberkeep.leadership.takeover import PortProbe
from tests.integration.zookeepers import Ensemble, connected, eventually, expire, settings

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.req("HA-1")]

_numbers = itertools.count()


class StoreTurn:
    """A turn that has a store and nothing else."""

    def __init__(self, store: ZooKeeperJobStore) -> None:
        self.store = store
        self.paused = False

    async def claim(self) -> int:
        return await self.store.open()

    async def serve(self, epoch: int) -> None:
        await asyncio.Event().wait()

    async def confirm(self) -> None:
        await self.store.confirm()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    async def retire(self) -> None:
        """There is nothing that only this turn needs."""

    async def close(self) -> None:
        await self.store.close()


class JobManager:
    """One contender with a session and a port of its own."""

    def __init__(
        self, hosts: str, layout: ZooKeeperLayout, graphs: Path, session_timeout: float, prober: Prober
    ) -> None:
        self.port = socket.socket()
        self.port.bind(("127.0.0.1", 0))
        self.port.listen()
        self.address = f"127.0.0.1:{self.port.getsockname()[1]}"
        self.session = ZooKeeperSession(settings(hosts, session_timeout=session_timeout))
        self.session.start()
        self.turns: list[StoreTurn] = []

        def turn() -> StoreTurn:
            store = ZooKeeperJobStore(self.session, layout, graphs, SystemIds(), address=self.address, elected=True)
            self.turns.append(StoreTurn(store))
            return self.turns[-1]

        self.election = ZooKeeperElection(self.session, layout, self.address, prober=prober)
        self.contender = Contender(self.election, turn, random.Random(1))
        self.task = asyncio.create_task(self.contender.run())

    @property
    def leads(self) -> bool:
        return self.contender.standing is Standing.LEADING

    def refuse(self) -> None:
        """Its process is gone, as far as others see: the port stays ours, so that nobody else listens there."""
        address = self.port.getsockname()
        self.port.close()
        self.port = socket.socket()
        self.port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.port.bind(address)

    async def leave(self) -> None:
        await self.contender.leave()
        await self.close()

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.port.close()
        await self.session.close()


class Field:
    def __init__(self, ensemble: Ensemble, graphs: Path) -> None:
        self.ensemble = ensemble
        self.layout = ZooKeeperLayout("emberkeep", f"election-{next(_numbers)}")
        self.graphs = graphs
        self.all: list[JobManager] = []

    async def add(self, session_timeout: float = 60.0, prober: Prober = probe) -> JobManager:
        manager = JobManager(self.ensemble.hosts, self.layout, self.graphs, session_timeout, prober)
        self.all.append(manager)
        await eventually(manager.election.settled.is_set, "a place in the queue")
        return manager

    async def close(self) -> None:
        for manager in self.all:
            await manager.close()


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    ensemble = Ensemble(tmp_path_factory.mktemp("zookeeper"))
    try:
        asyncio.run(ensemble.start())
        yield ensemble
    finally:
        ensemble.stop()


@pytest.fixture
async def field(ensemble: Ensemble, tmp_path: Path) -> AsyncIterator[Field]:
    field = Field(ensemble, tmp_path / "graphs")
    yield field
    await field.close()


async def test_one_leads_and_the_next_follows_when_it_leaves(field: Field) -> None:
    first = await field.add()
    await eventually(lambda: first.leads, "the first leads")
    second, third = await field.add(), await field.add()
    assert [manager.leads for manager in field.all] == [True, False, False]
    await first.leave()
    await eventually(lambda: second.leads, "the second follows")
    assert second.contender.epoch > 1
    assert not third.leads


async def test_a_leader_whose_port_refuses_is_followed_before_its_session_runs_out(field: Field) -> None:
    first = await field.add(session_timeout=120.0)
    await eventually(lambda: first.leads, "the first leads")
    reached: set[tuple[str, str]] = set()

    def noting(name: str) -> Prober:
        async def look(address: str) -> PortProbe:
            found = await probe(address)
            if found is PortProbe.ACCEPTED:
                reached.add((name, address))
            return found

        return look

    second, third = await field.add(prober=noting("second")), await field.add(prober=noting("third"))
    # Only who has accepted connections before is taken for gone where it refuses them.
    await eventually(lambda: ("second", first.address) in reached, "the second has reached the first")
    first.refuse()
    await eventually(lambda: second.leads, "the second takes over")
    assert first.session.state is SessionState.CONNECTED
    await eventually(lambda: first.contender.standing is Standing.WAITING, "the first has found out")
    assert first.contender.turn is None
    await eventually(lambda: ("third", second.address) in reached, "the third has reached the second")
    second.refuse()
    await eventually(lambda: third.leads, "the third takes over, though two stand before it")


@pytest.mark.req("SAFE-13")
async def test_two_that_refuse_each_others_connections_do_not_depose_each_other_for_ever(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A firewall that refuses in their name, once they have reached each other."""
    monkeypatch.setattr(zookeeper_election, "PROBE_INTERVAL", 0.005)
    probes = [0, 0]

    def refusing(index: int) -> Prober:
        async def look(_: str) -> PortProbe:
            probes[index] += 1
            return PortProbe.ACCEPTED if probes[index] == 1 else PortProbe.REFUSED

        return look

    managers = [await field.add(prober=refusing(index)) for index in range(2)]
    await eventually(lambda: sum(probes) > 1000, "they look at each other")
    assert sum(len(manager.turns) for manager in managers) <= 3


@pytest.mark.req("HA-9")
async def test_an_expired_leader_stands_by_again(field: Field, ensemble: Ensemble) -> None:
    first = await field.add()
    await eventually(lambda: first.leads, "the first leads")
    second = await field.add()
    await expire(first.session, ensemble.hosts)
    await eventually(lambda: second.leads, "the second follows")
    await eventually(lambda: first.contender.standing is Standing.WAITING, "the first stands by")
    await second.leave()
    await eventually(lambda: first.leads and len(first.turns) == 2, "the first leads again")


async def test_a_removed_latch_is_taken_again(field: Field) -> None:
    first = await field.add()
    await eventually(lambda: first.leads, "the first leads")
    (name,) = await first.session.children(field.layout.election)
    await first.session.delete(f"{field.layout.election}/{name}")
    await eventually(lambda: first.leads and len(first.turns) == 2, "it leads anew")


async def test_who_holds_the_port_takes_away_what_a_dead_predecessor_left(field: Field) -> None:
    first = await field.add()
    await eventually(lambda: first.leads, "the first leads")
    first.task.cancel()  # dead, but for its session
    await asyncio.gather(first.task, return_exceptions=True)
    session = ZooKeeperSession(settings(field.ensemble.hosts, session_timeout=60.0))
    session.start()
    await connected(session)
    election = ZooKeeperElection(session, field.layout, first.address)
    turn = StoreTurn(
        ZooKeeperJobStore(session, field.layout, field.graphs, SystemIds(), address=first.address, elected=True)
    )
    contender = Contender(election, lambda: turn, random.Random(1))
    task = asyncio.create_task(contender.run())
    await eventually(lambda: contender.standing is Standing.LEADING, "the restarted process leads")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await session.close()


@pytest.mark.req("HA-9")
async def test_without_zookeeper_the_leader_pauses_and_goes_on(tmp_path: Path) -> None:
    ensemble = Ensemble(tmp_path / "zookeeper")
    await ensemble.start()
    field = Field(ensemble, tmp_path / "graphs")
    try:
        first = await field.add()
        await eventually(lambda: first.leads, "the first leads")
        second = await field.add()
        epoch = first.contender.epoch
        ensemble.kill()
        await eventually(lambda: first.turns[0].paused, "it takes no decision")
        assert first.contender.standing is Standing.PAUSED
        ensemble.launch()
        await ensemble.serving()
        await eventually(lambda: first.leads, "it goes on")
        assert (first.contender.epoch, len(first.turns), second.leads) == (epoch, 1, False)
    finally:
        await field.close()
        ensemble.stop()


async def test_the_leader_is_found_and_followed(field: Field) -> None:
    first = await field.add()
    session = ZooKeeperSession(settings(field.ensemble.hosts))
    session.start()
    locator = ZooKeeperLocator(session, field.layout)
    looking = asyncio.create_task(locator.run())
    try:
        async with asyncio.timeout(240):
            found = await locator.changed(None)
        assert found == LeaderAddress(first.contender.epoch or 1, first.address)
        second = await field.add()
        await first.leave()
        async with asyncio.timeout(240):
            assert (await locator.changed(found)).address == second.address
        assert locator.leader() is not None
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        await session.close()
