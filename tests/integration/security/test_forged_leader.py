"""An attacker who may write to ZooKeeper, against processes with real connections: nobody sends him anything."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE

from emberkeep.adapters.http.rpc import HttpRpcClient
from emberkeep.adapters.zookeeper.access.settings import SessionSettings, ZooKeeperLogin, session_settings
from emberkeep.adapters.zookeeper.access.signatures import (
    RecordSigner,
    UnsignedRecords,
    content_of,
    signing_key,
)
from emberkeep.adapters.zookeeper.layout import LatchRecord, LeaderRecord, ZooKeeperLayout, encode_node
from emberkeep.adapters.zookeeper.paths import check_access, make_paths
from emberkeep.adapters.zookeeper.session import ZooKeeperSession
from emberkeep.adapters.zookeeper.store import ZooKeeperJobStore
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import EmberkeepError, Fatal
from emberkeep.base.files.ownership import OwnedPlaceKind, Owner, encode_owner
from emberkeep.base.ids import SystemIds
from emberkeep.daemons.leader_following import follow_leader, locate_by_zookeeper
from emberkeep.daemons.process_main import Services
from emberkeep.jobs.ports import Trouble
from emberkeep.protocol.messages.leaders import AskLeader, LeaderTold
from tests.integration.conditions import DEADLINE
from tests.integration.zookeepers import Ensemble, connected, eventually, settings
from tests.support.contracts.job_store import job

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.req("SEC-2")]

TOKEN = "the-token-of-this-cluster-" + "x" * 20


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    ensemble = Ensemble(tmp_path_factory.mktemp("zookeeper"))
    try:
        asyncio.run(ensemble.start())
        yield ensemble
    finally:
        ensemble.stop()


@pytest.fixture
def anyone(ensemble: Ensemble) -> Iterator[KazooClient]:
    """A client without any secret."""
    client = KazooClient(hosts=ensemble.hosts)
    client.start(timeout=DEADLINE)
    yield client
    client.stop()
    client.close()


class Trap:
    """A port of the attacker's, with all that was sent there."""

    def __init__(self) -> None:
        self.received = b""
        self.address = ""
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            self.received += await reader.read(65536)
        writer.close()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()


@pytest.fixture
async def trap() -> AsyncIterator[Trap]:
    trap = Trap()
    await trap.open()
    yield trap
    await trap.close()


class TaskManager:
    """Calls whatever leader it has learned of, with the token."""

    def __init__(self, rpc: HttpRpcClient) -> None:
        self.job_manager = "127.0.0.1:9"
        self.on_silence = lambda: None
        self._rpc = rpc
        self._calls: set[asyncio.Task[None]] = set()

    def follow(self, job_manager: str) -> None:
        self.job_manager = job_manager
        self._calls.add(asyncio.create_task(self._call(job_manager)))

    async def _call(self, address: str) -> None:
        with contextlib.suppress(EmberkeepError):
            await self._rpc.call(address, AskLeader(), LeaderTold, timeout=DEADLINE)


def configuration(ensemble: Ensemble, name: str, rule: str = "refuse") -> Configuration:
    return Configuration().with_texts(
        {
            "high-availability.type": "zookeeper",
            "high-availability.zookeeper.quorum": ensemble.hosts,
            "high-availability.cluster-id": name,
            "high-availability.zookeeper.insecure-records": rule,
        },
        "test",
    )


class Leaders:
    """JobManagers that become the leader one after the other."""

    def __init__(self, graphs: Path) -> None:
        self._graphs = graphs
        self._sessions: list[ZooKeeperSession] = []

    async def session(self, its_settings: SessionSettings) -> ZooKeeperSession:
        session = ZooKeeperSession(its_settings)
        session.start()
        self._sessions.append(session)
        return await connected(session)

    async def next(self, its_settings: SessionSettings, layout: ZooKeeperLayout, address: str) -> ZooKeeperJobStore:
        session = await self.session(its_settings)
        store = ZooKeeperJobStore(session, layout, self._graphs, SystemIds(), address=address, elected=True)
        await store.open()
        if not await session.exists(layout.owner):
            owner = Owner(cluster_id="c", kind=OwnedPlaceKind.ZOOKEEPER, created_at_ms=1)
            await session.create(layout.owner, encode_owner(owner))
        return store

    async def close(self) -> None:
        for session in self._sessions:
            await session.close()


@pytest.fixture
async def leaders(tmp_path: Path) -> AsyncIterator[Leaders]:
    leaders = Leaders(tmp_path / "graphs")
    yield leaders
    await leaders.close()


@pytest.mark.parametrize("rule", ["refuse", "keep-unsigned"])
async def test_an_attacker_who_names_himself_leader_gets_nothing(
    ensemble: Ensemble, anyone: KazooClient, trap: Trap, leaders: Leaders, rule: str
) -> None:
    """The insecure rule shows that the attack works as such."""
    name = f"forged-{rule}"
    layout, own = ZooKeeperLayout("emberkeep", name), configuration(ensemble, name, rule)
    its_settings, services = session_settings(own, TOKEN), Services()
    with socket.socket() as port:  # refuses connections, and nobody else listens there
        port.bind(("127.0.0.1", 0))
        genuine = f"127.0.0.1:{port.getsockname()[1]}"
        await leaders.next(its_settings, layout, genuine)
        async with contextlib.AsyncExitStack() as stack:
            rpc = HttpRpcClient(TOKEN)
            stack.push_async_callback(rpc.close)
            stack.push_async_callback(services.cancel)
            task_manager = TaskManager(rpc)
            known = locate_by_zookeeper(own, TOKEN, services, stack)
            follow_leader(known, task_manager, rpc, services, is_informed=lambda: known.is_informed)
            await eventually(lambda: task_manager.job_manager == genuine, "it follows the leader")

            latch = encode_node(LatchRecord(address=trap.address))
            anyone.create(f"{layout.election}/latch-", latch, ephemeral=True, sequence=True)
            anyone.set(layout.epoch, encode_node(LeaderRecord(address=trap.address, life="x")))
            if rule == "keep-unsigned":
                await eventually(lambda: TOKEN.encode() in trap.received, "the attacker has the token")
                return
            # Once it follows the next leader, it has seen all that was written before.
            await leaders.next(its_settings, layout, f"{genuine}0")
            await eventually(lambda: task_manager.job_manager == f"{genuine}0", "it follows the next leader")
            assert trap.address not in known.news().job_managers
    assert trap.received == b""


@pytest.mark.parametrize("what", ["handle", "attempt", "pointers"])
async def test_a_job_with_a_forged_record_waits_and_loses_nothing(
    ensemble: Ensemble, anyone: KazooClient, leaders: Leaders, what: str
) -> None:
    layout = ZooKeeperLayout("emberkeep", f"job-{what}")
    store = await leaders.next(settings(ensemble.hosts), layout, "jm-1:1")
    await store.create(job(1))
    await store.create(job(2))
    await store.record_attempt(job(1).job_id, 1)
    place = {"handle": layout.job, "attempt": layout.attempt, "pointers": layout.checkpoint}[what]
    path, other = place(job(1).job_id), layout.job(job(2).job_id)
    # Sound in another job's place, and so a forgery here: the attacker chooses which graph runs.
    stored = anyone.get(other)[0]
    (anyone.set if anyone.exists(path) else anyone.create)(path, stored)

    forged, sound = await (await leaders.next(settings(ensemble.hosts), layout, "jm-2:1")).recover()
    assert (forged.trouble, forged.graph, sound.graph) == (Trouble.AWAY, None, job(2))
    assert path in forged.problem
    assert anyone.get(path)[0] == stored


async def test_records_of_the_release_before_are_signed_once_if_the_operator_says_so(
    ensemble: Ensemble, anyone: KazooClient, leaders: Leaders
) -> None:
    layout, key = ZooKeeperLayout("emberkeep", "upgraded"), signing_key("another token")

    def ruled(rule: UnsignedRecords) -> SessionSettings:
        plain = settings(ensemble.hosts)
        return SessionSettings(
            hosts=plain.hosts, session_timeout=10.0, operation_timeout=15.0, signer=RecordSigner(key, rule)
        )

    before = await leaders.next(ruled(UnsignedRecords.KEEP), layout, "jm-1:1")
    await before.create(job(1))
    path = layout.job(job(1).job_id)
    unsigned = anyone.get(path)[0]
    assert content_of(unsigned) == unsigned
    with pytest.raises(Fatal, match=f"{layout.epoch} is not signed"):
        await leaders.next(ruled(UnsignedRecords.REFUSE), layout, "jm-2:1")
    signing = await leaders.next(ruled(UnsignedRecords.SIGN), layout, "jm-3:1")
    assert content_of(anyone.get(path)[0]) == unsigned != anyone.get(path)[0]
    assert [each.graph for each in await signing.recover()] == [job(1)]
    anyone.set(path, unsigned)
    (forged,) = await signing.recover()
    assert (forged.trouble, forged.graph) == (Trouble.AWAY, None), "it trusts no unsigned record any more"
    await leaders.next(ruled(UnsignedRecords.SIGN), layout, "jm-4:1")
    following = await leaders.next(ruled(UnsignedRecords.REFUSE), layout, "jm-5:1")
    assert [each.graph for each in await following.recover()] == [job(1)]
    back = await leaders.next(ruled(UnsignedRecords.KEEP), layout, "jm-6:1")
    assert anyone.get(path)[0] == unsigned, "the release before can read it again"
    assert [each.graph for each in await back.recover()] == [job(1)]
    with pytest.raises(Fatal, match="is not signed"):
        await leaders.next(settings(ensemble.hosts), layout, "jm-7:1")


@pytest.mark.req("SEC-3")
async def test_nodes_that_were_open_are_found_below_and_restricted_if_the_operator_says_so(
    ensemble: Ensemble, anyone: KazooClient, leaders: Leaders
) -> None:
    layout = ZooKeeperLayout("emberkeep", "opened")

    def ruled(rule: UnsignedRecords) -> SessionSettings:
        return SessionSettings(
            hosts=ensemble.hosts,
            session_timeout=10.0,
            operation_timeout=15.0,
            signer=RecordSigner(signing_key("token"), rule),
            login=ZooKeeperLogin("digest:emberkeep:secret"),
            creator_only=True,
        )

    strict = await leaders.session(ruled(UnsignedRecords.REFUSE))
    await make_paths(strict, layout)
    open_node = f"{layout.results}/{'a' * 32}"
    await strict.create(open_node, b"", acl=OPEN_ACL_UNSAFE)
    with pytest.raises(Fatal, match=f"{open_node} is open to world:anyone"):
        await check_access(strict, layout)
    await check_access(await leaders.session(ruled(UnsignedRecords.SIGN)), layout)
    await check_access(strict, layout)
    with pytest.raises(NoAuthError):
        anyone.get(open_node)
