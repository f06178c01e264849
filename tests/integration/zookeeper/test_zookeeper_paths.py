"""Where a cluster's nodes lie: what it needs to be allowed, what others may do there, what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, make_acl

from emberkeep.adapters.zookeeper.access.settings import SessionSettings, ZooKeeperLogin
from emberkeep.adapters.zookeeper.layout import ZooKeeperLayout
from emberkeep.adapters.zookeeper.paths import make_paths
from emberkeep.adapters.zookeeper.session import ZooKeeperSession
from emberkeep.base.errors import Fatal
from emberkeep.client.clusters.daemon_process import DaemonCommand, start_daemon
from tests.integration.conditions import DEADLINE
from tests.integration.zookeepers import Ensemble, connected, signer

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.req("SAFE-13")]

READ_ONLY = [make_acl("world", "anyone", read=True)]


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    ensemble = Ensemble(tmp_path_factory.mktemp("zookeeper"))
    try:
        asyncio.run(ensemble.start())
        yield ensemble
    finally:
        ensemble.stop()


@pytest.fixture
def admin(ensemble: Ensemble) -> Iterator[KazooClient]:
    client = KazooClient(hosts=ensemble.hosts, auth_data=[("digest", "admin:admin")])
    client.start(timeout=DEADLINE)
    yield client
    client.stop()
    client.close()


class Sessions:
    def __init__(self, hosts: str) -> None:
        self._hosts = hosts
        self._open: list[ZooKeeperSession] = []

    async def of(self, user: str = "", *, below: str = "") -> ZooKeeperSession:
        """``user``: their nodes are theirs only."""
        settings = SessionSettings(
            hosts=self._hosts + below,
            session_timeout=10.0,
            operation_timeout=15.0,
            signer=signer(),
            login=ZooKeeperLogin(f"digest:{user}:{user}" if user else ""),
            creator_only=bool(user),
        )
        self._open.append(ZooKeeperSession(settings))
        self._open[-1].start()
        return await connected(self._open[-1])

    async def close(self) -> None:
        for session in self._open:
            await session.close()


@pytest.fixture
async def sessions(ensemble: Ensemble) -> AsyncIterator[Sessions]:
    sessions = Sessions(ensemble.hosts)
    yield sessions
    await sessions.close()


async def test_only_what_is_missing_has_to_be_allowed(admin: KazooClient, sessions: Sessions) -> None:
    admin.create("/given/to", makepath=True)
    admin.set_acls("/given", [*CREATOR_ALL_ACL, *READ_ONLY])
    admin.set_acls("/given/to", [*CREATOR_ALL_ACL, make_acl("world", "anyone", create=True)])
    layout = ZooKeeperLayout("given/to", "one")
    session = await sessions.of()
    await make_paths(session, layout)
    await make_paths(session, layout)
    assert await session.children(layout.jobs) == []


async def test_what_is_missing_and_not_allowed_is_named_with_what_to_do(admin: KazooClient, sessions: Sessions) -> None:
    admin.create("/kept", acl=[*CREATOR_ALL_ACL, *READ_ONLY])
    with pytest.raises(Fatal, match="cannot create /kept/one: ZooKeeper denied access") as caught:
        await make_paths(await sessions.of(), ZooKeeperLayout("kept", "one"))
    assert "setAcl /kept world:anyone:cr" in str(caught.value.hint)


async def test_two_clusters_below_one_root_have_nodes_of_their_own(sessions: Sessions) -> None:
    one, two = ZooKeeperLayout("shared/root", "one"), ZooKeeperLayout("shared/root", "two")
    first, second = await sessions.of("first"), await sessions.of("second")
    await make_paths(first, one)
    await make_paths(second, two)
    await make_paths(first, one)
    for attempt in (second.create(f"{one.jobs}/x", b""), second.delete(one.epoch)):
        with pytest.raises(Fatal):
            await attempt
    with pytest.raises(Fatal, match="denied access"):
        await second.get(one.epoch)


@pytest.mark.parametrize("made_before", ["", "/epoch"])
async def test_nodes_that_are_open_to_others_are_refused(
    admin: KazooClient, sessions: Sessions, made_before: str
) -> None:
    layout = ZooKeeperLayout("open", f"cluster{made_before.strip('/')}")
    admin.create(layout.base + made_before, makepath=True, acl=OPEN_ACL_UNSAFE)
    with pytest.raises(Fatal, match=f"{layout.base}.* is open to world:anyone") as caught:
        await make_paths(await sessions.of("owner"), layout)
    assert "setAcl -R" in str(caught.value.hint)


async def test_a_job_manager_says_that_its_chroot_does_not_exist(ensemble: Ensemble, tmp_path: Path) -> None:
    settings = {
        "high-availability.type": "zookeeper",
        "high-availability.zookeeper.quorum": f"{ensemble.hosts}/nowhere",
        "emberkeep.state-dir": str(tmp_path / "state"),
        "rest.port": "0",
    }
    words = tuple(word for key, value in settings.items() for word in ("-D", f"{key}={value}"))
    daemon = start_daemon(DaemonCommand("jobmanager", words, tmp_path / "jobmanager"))
    try:
        with pytest.raises(Fatal, match="/nowhere names a path in ZooKeeper that does not exist"):
            await daemon.ready()
    finally:
        await asyncio.to_thread(daemon.kill)
