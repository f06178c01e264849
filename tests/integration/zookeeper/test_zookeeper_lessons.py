"""Lessons of other systems that kept their jobs in ZooKeeper, against a real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from emberkeep.adapters.zookeeper.layout import ZooKeeperLayout
from emberkeep.adapters.zookeeper.session import ZooKeeperSession
from emberkeep.adapters.zookeeper.store import ZooKeeperJobStore
from emberkeep.base.errors import Conflict
from emberkeep.base.ids import SystemIds
from tests.integration.conditions import DEADLINE
from tests.integration.zookeepers import Ensemble, connected, settings
from tests.support.contracts.job_store import job, result_of

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

LAYOUT = ZooKeeperLayout("emberkeep", "lessons")


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[Ensemble]:
    ensemble = Ensemble(tmp_path / "zookeeper")
    try:
        asyncio.run(ensemble.start())
        yield ensemble
    finally:
        ensemble.stop()


class Leaders:
    """One after the other, each with a session of its own that stays."""

    def __init__(self, hosts: str, graphs: Path) -> None:
        self.sessions: list[ZooKeeperSession] = []
        self._hosts = hosts
        self._graphs = graphs

    async def next(self) -> ZooKeeperJobStore:
        session = ZooKeeperSession(settings(self._hosts))
        self.sessions.append(session)
        session.start()
        await connected(session)
        address = f"jm-{len(self.sessions)}:1"
        store = ZooKeeperJobStore(session, LAYOUT, self._graphs, SystemIds(), address=address, elected=True)
        await store.open()
        return store


@pytest.fixture
async def leaders(ensemble: Ensemble, tmp_path: Path) -> AsyncIterator[Leaders]:
    leaders = Leaders(ensemble.hosts, tmp_path / "graphs")
    yield leaders
    for session in leaders.sessions:
        await session.close()


@pytest.mark.req("HA-4")
@pytest.mark.req("HA-6")
async def test_an_old_leader_that_still_has_its_session_does_not_keep_an_ended_job_alive(
    leaders: Leaders, ensemble: Ensemble
) -> None:
    """FLINK-10011 (also 10328, 10329): each leader locked job graphs with an ephemeral node below them. While the old
    leader's session lived, the new one could not delete the graph of a job that had ended; at the next failover the job
    was run again."""
    old = await leaders.next()
    await old.create(job(1))
    assert len(await old.recover()) == 1
    new = await leaders.next()
    assert len(await new.recover()) == 1
    await new.record_attempt(job(1).job_id, 1)
    await new.record_result(result_of(job(1)))
    with pytest.raises(Conflict, match="epoch"):
        await old.record_attempt(job(1).job_id, 2)
    third = await leaders.next()
    assert await third.recover() == []
    assert await third.results() == [result_of(job(1))]
    assert await asyncio.to_thread(_nodes_of, ensemble.hosts, job(1).job_id) == [LAYOUT.result(job(1).job_id)]


def _nodes_of(hosts: str, job_id: str) -> list[str]:
    """Every node that is named after the job."""
    kazoo = KazooClient(hosts=hosts)
    kazoo.start(timeout=DEADLINE)
    try:
        parents = (LAYOUT.jobs, LAYOUT.attempts, LAYOUT.results, LAYOUT.damaged)
        return [f"{parent}/{job_id}" for parent in parents if job_id in kazoo.get_children(parent)]
    finally:
        kazoo.stop()
        kazoo.close()
