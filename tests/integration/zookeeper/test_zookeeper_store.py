"""The job store over a real ZooKeeper holds the contract of all job stores, and what only several JobManagers show."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from kazoo.client import KazooClient

from emberkeep.adapters.shared_storage.cluster import ClusterStorage
from emberkeep.adapters.shared_storage.store_origin import StoreOrigin
from emberkeep.adapters.zookeeper.access.settings import ZooKeeperLogin
from emberkeep.adapters.zookeeper.access.signatures import content_of
from emberkeep.adapters.zookeeper.layout import ZooKeeperLayout, encode_node
from emberkeep.adapters.zookeeper.records.owner import RootOwner
from emberkeep.adapters.zookeeper.session import SessionState, ZooKeeperSession
from emberkeep.adapters.zookeeper.store import ZooKeeperJobStore
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.directories import STORAGE_DIRECTORY
from emberkeep.base.configuration.options.high_availability import HA_CLUSTER_ID, HA_TYPE
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Conflict, EmberkeepError, Fatal, RetryLater, Unavailable, UnknownOutcome
from emberkeep.base.files.ownership import Unclaimed
from emberkeep.base.ids import JobId, SystemIds
from emberkeep.blocklist.model import Blocklist
from emberkeep.identities.model import NamedTokens
from emberkeep.identities.ports import TokenStore
from emberkeep.jobs.model import JobStatus
from tests.integration.conditions import DEADLINE
from tests.integration.zookeepers import Ensemble, connected, eventually, expire, settings, signer
from tests.support.contracts.damaged_jobs import DamagedJobsContract
from tests.support.contracts.job_store import JobStoreContract, job, result_of
from tests.support.contracts.token_store import TOKENS, Stores, TokenStoreContract

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

_numbers = itertools.count()


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """One server for all tests that leave it alone; each test has a cluster of its own in it."""
    ensemble = Ensemble(tmp_path_factory.mktemp("zookeeper"))
    try:
        asyncio.run(ensemble.start())
        yield ensemble
    finally:
        ensemble.stop()


class PatientStore(ZooKeeperJobStore):
    """Connects first."""

    async def open(self) -> int:
        await connected(self._session)
        return await super().open()


class Cluster:
    """The place under test: each store has a session of its own, as each JobManager has."""

    def __init__(self, hosts: str, graphs: Path) -> None:
        self.hosts = hosts
        self.graphs = graphs
        self.layout = ZooKeeperLayout("emberkeep", f"test-{next(_numbers)}")
        self.sessions: list[ZooKeeperSession] = []
        self._direct: KazooClient | None = None

    @property
    def direct(self) -> KazooClient:
        if self._direct is None:
            self._direct = KazooClient(hosts=self.hosts)
            self._direct.start(timeout=DEADLINE)
        return self._direct

    def session(self, *, session_timeout: float = 10.0, operation_timeout: float = 15.0) -> ZooKeeperSession:
        session = ZooKeeperSession(
            settings(self.hosts, session_timeout=session_timeout, operation_timeout=operation_timeout)
        )
        session.start()
        self.sessions.append(session)
        return session

    def store_of(
        self, session: ZooKeeperSession, *, elected: bool = False, storage: ClusterStorage | None = None
    ) -> PatientStore:
        address = f"jm-{len(self.sessions)}:1"
        return PatientStore(
            session, self.layout, self.graphs, SystemIds(), address=address, elected=elected, storage=storage
        )

    def store(self) -> PatientStore:
        return self.store_of(self.session())

    def read(self, path: str) -> bytes:
        """The content of a node."""
        return content_of(self.direct.get(path)[0])

    def write(self, path: str, data: bytes) -> None:
        """As a process of the cluster does, whatever the data."""
        self.direct.ensure_path(path)
        self.direct.set(path, signer().signed(path, data))

    def crash(self) -> None:
        """The leader's session has run out; nothing was said."""
        self.depose()

    def depose(self) -> None:
        self.direct.delete(self.layout.leader)

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        graphs, elsewhere = self.graphs, self.graphs.with_name("elsewhere")
        graphs.rename(elsewhere)
        try:
            yield
        finally:
            elsewhere.rename(graphs)

    def damage(self, job_id: JobId) -> str:
        (path,) = self.graphs.glob(f"{job_id}.*.graph")
        path.write_bytes(path.read_bytes()[:-10])
        return str(path)

    async def damage_pointers(self, job_id: JobId) -> bytes:
        return self._tear(self.layout.checkpoint(job_id))

    async def damage_attempt(self, job_id: JobId) -> bytes:
        return self._tear(self.layout.attempt(job_id))

    def _tear(self, path: str) -> bytes:
        data = self.read(path)[:-5]
        self.write(path, data)
        return data

    async def records(self, job_id: JobId) -> list[bytes]:
        layout, kept = self.layout, self.layout.damaged_job(job_id)
        paths = [layout.attempt(job_id), layout.checkpoint(job_id), kept]
        if self.direct.exists(kept):
            paths += [f"{kept}/{part}" for part in self.direct.get_children(kept)]
        return [self.read(path) for path in paths if self.direct.exists(path)]

    async def damage_blocklist(self) -> None:
        self._tear(self.layout.blocklist)

    def nodes(self, path: str) -> list[str]:
        return sorted(self.direct.get_children(path))

    async def close(self) -> None:
        for session in self.sessions:
            await session.close()
        if self._direct is not None:
            self._direct.stop()
            self._direct.close()


@pytest.fixture
async def cluster(ensemble: Ensemble, tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(ensemble.hosts, tmp_path / "graphs")
    yield cluster
    await cluster.close()


class StorageOfARoot:
    """A storage without a record, with data of a job, and the JobManagers that lead one after the other."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        texts = {STORAGE_DIRECTORY.key: str(directory), HA_TYPE.key: "zookeeper", HA_CLUSTER_ID.key: "north"}
        self.place = StateLayout(directory.with_name("state"), Configuration().with_texts(texts, "test"))
        self._cluster = cluster
        (self.place.checkpoints / job(1).job_id).mkdir(parents=True)

    async def problem_at_a_start(self) -> EmberkeepError | None:
        storage = ClusterStorage(self.place, lambda: 1000)
        store = self._cluster.store_of(self._cluster.session(), storage=storage)
        await store.open()
        await store.close()
        return storage.problem()


@pytest.mark.req("SAFE-6")
async def test_a_new_root_adopts_data_without_a_record_at_no_start(cluster: Cluster, tmp_path: Path) -> None:
    site = StorageOfARoot(cluster, tmp_path / "storage")
    for _ in range(3):
        assert isinstance(await site.problem_at_a_start(), Unclaimed)


@pytest.mark.req("SAFE-6")
async def test_a_root_whose_first_leader_died_at_its_start_adopts_nothing(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has taken the first epoch, and nothing more."""

    async def die(_: object) -> StoreOrigin:
        raise RetryLater("ZooKeeper cannot be reached")

    site = StorageOfARoot(cluster, tmp_path / "storage")
    with monkeypatch.context() as dying:
        dying.setattr(RootOwner, "origin", die)
        with pytest.raises(RetryLater):
            await site.problem_at_a_start()
    assert isinstance(await site.problem_at_a_start(), Unclaimed)


@pytest.mark.req("SAFE-14")
async def test_a_root_of_the_release_before_adopts_its_data(cluster: Cluster, tmp_path: Path) -> None:
    before = cluster.store()  # without a storage no record is kept, as in that release
    await before.open()
    await before.close()
    site = StorageOfARoot(cluster, tmp_path / "storage")
    for _ in range(2):
        assert await site.problem_at_a_start() is None


class TestTokens(TokenStoreContract):
    @pytest.fixture
    def stores(self, cluster: Cluster) -> Stores:
        @contextlib.asynccontextmanager
        async def opened() -> AsyncIterator[TokenStore]:
            store = cluster.store()
            await store.open()
            yield store.tokens
            await store.close()

        return opened

    @pytest.mark.req("SEC-2")
    async def test_forged_tokens_open_nothing(self, stores: Stores, cluster: Cluster) -> None:
        async with stores() as store:
            await store.record(TOKENS)
            cluster.direct.set(cluster.layout.tokens, encode_node(NamedTokens(tokens=TOKENS.tokens[1:])))
            with pytest.raises(Fatal, match="tokens"):
                await store.read()


class TestZooKeeper(JobStoreContract, DamagedJobsContract):
    @pytest.fixture
    def place(self, cluster: Cluster) -> Cluster:
        return cluster


@pytest.mark.req("HA-2")
@pytest.mark.req("HA-3")
@pytest.mark.req("HA-12")
async def test_the_expected_nodes_are_written_and_they_are_small(cluster: Cluster) -> None:
    store = cluster.store()
    epoch = await store.open()
    large = job(1, options={"x": "y" * 3_000_000})
    await store.create(large)
    layout = cluster.layout
    assert cluster.nodes(layout.jobs) == [large.job_id]
    handle, _ = cluster.direct.get(layout.job(large.job_id))
    assert len(handle) < 1000
    assert cluster.direct.get(layout.epoch)[1].version == epoch
    assert b"jm-1:1" in cluster.direct.get(layout.leader)[0]
    assert cluster.direct.get(layout.leader)[1].ephemeralOwner
    await store.record_result(result_of(large))
    assert cluster.nodes(layout.jobs) == cluster.nodes(layout.attempts) == []
    assert cluster.nodes(layout.results) == [large.job_id]
    assert list(cluster.graphs.iterdir()) == []
    await store.close()
    assert cluster.direct.exists(layout.leader) is None


@pytest.mark.req("HA-2")
async def test_a_result_larger_than_any_node_may_be_is_kept_too(cluster: Cluster) -> None:
    store = cluster.store()
    await store.open()
    await store.create(job(1))
    large = msgspec.structs.replace(result_of(job(1), JobStatus.FAILED), root_cause="x" * 3_000_000)
    await store.record_result(large)
    await store.record_result(large)
    with pytest.raises(Conflict):
        await store.record_result(result_of(job(1)))
    assert len(cluster.direct.get(cluster.layout.result(job(1).job_id))[0]) < 5000
    await store.close()
    following = cluster.store()
    await following.open()
    assert await following.recover() == []
    assert await following.results() == [large]
    away = cluster.graphs.rename(cluster.graphs.with_name("away"))
    (outline,) = await following.results()
    assert (outline.job_id, outline.status, outline.ended_ms) == (large.job_id, large.status, large.ended_ms)
    with pytest.raises(Unavailable):
        await following.record_result(large)
    away.rename(cluster.graphs)
    assert await following.results() == [large]
    assert await following.expire_results(0) == [job(1).job_id]
    assert list(cluster.graphs.iterdir()) == []


@pytest.mark.parametrize("authorization", ["", "digest:somebody:else"])
async def test_nodes_are_for_those_who_have_the_clusters_name_only(cluster: Cluster, authorization: str) -> None:
    own = replace(settings(cluster.hosts), login=ZooKeeperLogin("digest:emberkeep:secret"), creator_only=True)
    foreign = replace(settings(cluster.hosts), login=ZooKeeperLogin(authorization))
    sessions = [ZooKeeperSession(each) for each in (own, own, foreign)]
    cluster.sessions += sessions
    for session in sessions:
        session.start()
        await connected(session)
    store = cluster.store_of(sessions[0])
    await store.open()
    await store.create(job(1))
    with pytest.raises(Fatal, match="authorization"):
        await cluster.store_of(sessions[2], elected=True).open()
    await store.close()
    following = cluster.store_of(sessions[1])
    await following.open()
    assert len(await following.recover()) == 1
    await following.close()


@pytest.mark.req("HA-6")
async def test_an_elected_store_deposes_a_leader_that_is_still_published(cluster: Cluster) -> None:
    old = cluster.store()
    await old.open()
    await old.create(job(1))
    new = cluster.store_of(cluster.session(), elected=True)
    await new.open()
    for refused in (
        old.create(job(1)),
        old.create(job(2)),
        old.record_attempt(job(1).job_id, 1),
        old.record_attempt(job(1).job_id, 0),
        old.record_attempt(job(9).job_id, 1),
        old.record_result(result_of(job(1))),
        old.record_result(result_of(job(9))),
        old.expire_results(0),
        old.confirm(),
    ):
        with pytest.raises(Conflict, match="epoch"):
            await refused
    await old.close()
    assert b"jm-2:1" in cluster.direct.get(cluster.layout.leader)[0]
    assert (await new.recover())[0].graph == job(1)


@pytest.mark.req("HA-6")
async def test_the_race_of_two_leaders_and_a_finishing_job(cluster: Cluster) -> None:
    """A leads, a job runs; B leads too and has recovered it; the job finishes and A hears of it first."""
    first, second = cluster.store(), cluster.store_of(cluster.session(), elected=True)
    await first.open()
    await first.create(job(1))
    await first.record_attempt(job(1).job_id, 1)
    await second.open()
    assert [(stored.job_id, stored.attempt) for stored in await second.recover()] == [(job(1).job_id, 1)]
    with pytest.raises(Conflict, match="epoch"):
        await first.record_result(result_of(job(1)))
    assert cluster.nodes(cluster.layout.jobs) == [job(1).job_id]
    await second.record_result(result_of(job(1)))
    with pytest.raises(Conflict, match="epoch"):
        await first.record_attempt(job(1).job_id, 2)
    assert cluster.nodes(cluster.layout.jobs) == []
    assert await second.results() == [result_of(job(1))]


@pytest.mark.req("HA-6")
async def test_of_many_that_claim_at_once_one_leads(cluster: Cluster) -> None:
    stores = [cluster.store_of(cluster.session(), elected=True) for _ in range(5)]
    outcomes = await asyncio.gather(*(store.open() for store in stores), return_exceptions=True)
    epochs = sorted(outcome for outcome in outcomes if isinstance(outcome, int))
    assert len(set(epochs)) == len(epochs) >= 1
    assert all(isinstance(outcome, int | Conflict | RetryLater) for outcome in outcomes)
    writing = await asyncio.gather(*(store.create(job(1)) for store in stores), return_exceptions=True)
    assert [isinstance(outcome, str) for outcome in writing].count(True) == 1


@pytest.mark.req("HA-10")
@pytest.mark.parametrize("data", [b"", b"torn", b"emberkeep-record job-handle 99 2 00000000\n{}"])
async def test_an_unreadable_handle_spoils_only_its_own_job_and_is_kept(cluster: Cluster, data: bytes) -> None:
    store = cluster.store()
    await store.open()
    await store.create(job(1))
    await store.create(job(2))
    path = cluster.layout.job(job(1).job_id)
    cluster.write(path, data)
    damaged, sound = await store.recover()
    assert (damaged.graph, sound.graph) == (None, job(2))
    assert path in damaged.problem
    await store.record_result(result_of(job(1), JobStatus.FAILED))
    assert cluster.read(cluster.layout.damaged_job(job(1).job_id)) == data
    await store.close()
    following = cluster.store()
    await following.open()
    assert [stored.job_id for stored in await following.recover()] == [job(2).job_id]
    assert len(list(cluster.graphs.iterdir())) == 2


@pytest.mark.req("SAFE-3")
@pytest.mark.parametrize("what", ["handle", "graph"])
async def test_what_is_left_of_a_damaged_job_goes_with_its_graphs_but_not_the_blocklist(
    cluster: Cluster, what: str
) -> None:
    store = cluster.store()
    await store.open()
    for number in (1, 2):
        await store.create(job(number))
    cluster.write(cluster.layout.damaged_blocklist, b"torn")
    if what == "handle":
        cluster.write(cluster.layout.job(job(1).job_id), b"torn")
    cluster.damage(job(1).job_id)
    await store.record_result(result_of(job(1), JobStatus.FAILED))
    (kept,) = await store.damaged()
    path = cluster.layout.damaged_job(job(1).job_id)
    (graph,) = cluster.graphs.glob(f"{job(1).job_id}.*.graph")
    attempt = cluster.layout.damaged_attempt(job(1).job_id)
    assert kept.places == (f"ZooKeeper, {path}", f"ZooKeeper, {attempt}", str(graph))
    assert kept.since_ms == cluster.direct.get(path)[1].ctime
    await store.remove_damaged(job(1).job_id)
    assert [file.name.partition(".")[0] for file in cluster.graphs.iterdir()] == [job(2).job_id]
    assert cluster.direct.get_children(cluster.layout.damaged) == ["blocklist"]
    assert [stored.graph for stored in await store.recover()] == [job(2)]


@pytest.mark.req("SAFE-7")
async def test_graphs_of_earlier_leaders_without_a_handle_stay_until_they_are_removed(cluster: Cluster) -> None:
    store = cluster.store()
    await store.open()
    await store.create(job(1))
    epoch = cluster.direct.get(cluster.layout.epoch)[1].version
    orphan = cluster.graphs / f"{job(2).job_id}.{epoch}.graph"
    (used,) = cluster.graphs.iterdir()
    orphan.write_bytes(used.read_bytes())
    assert len(await store.recover()) == 1
    assert set(await store.leftovers.graphs()) == set(), "it may be one that is being submitted"
    await store.close()
    following = cluster.store()
    await following.open()
    assert len(await following.recover()) == 1
    assert set(await following.leftovers.graphs()) == {job(2).job_id}
    for number in (1, 2):
        await following.leftovers.remove_graph(job(number).job_id)
    assert list(cluster.graphs.iterdir()) == [used]
    assert set(await following.leftovers.graphs()) == set()


@pytest.mark.req("SAFE-15")
async def test_an_epoch_whose_leader_cannot_be_read_is_followed_by_the_next(cluster: Cluster) -> None:
    store = cluster.store()
    first = await store.open()
    cluster.write(cluster.layout.epoch, b"torn")
    with pytest.raises(Conflict):
        await store.confirm()
    cluster.write(cluster.layout.leader, b"torn")
    following = cluster.store()
    with pytest.raises(Conflict, match="cannot be read"):
        await following.open()
    await store.close()
    cluster.direct.delete(cluster.layout.leader)
    assert await following.open() == first + 2


@pytest.mark.req("SAFE-15")
async def test_what_cannot_be_read_stops_no_sweep_of_others(cluster: Cluster) -> None:
    store = cluster.store()
    await store.open()
    for number in (1, 2, 3):
        await store.create(job(number))
    await store.record_result(result_of(job(3), JobStatus.FINISHED))
    epoch = cluster.direct.get(cluster.layout.epoch)[1].version
    kept = {path.name for path in cluster.graphs.iterdir()}
    graph = next(iter(cluster.graphs.iterdir())).read_bytes()
    for name in (f"{job(4).job_id}.{epoch}.graph", f"{job(4).job_id}.{epoch}.result"):
        (cluster.graphs / name).write_bytes(graph)
    of_unread_result = f"{job(3).job_id}.{epoch}.result"
    (cluster.graphs / of_unread_result).write_bytes(b"large")
    cluster.write(cluster.layout.job(job(2).job_id), b"torn")
    cluster.write(cluster.layout.result(job(3).job_id), b"torn")
    cluster.write(cluster.layout.damaged_job(job(5).job_id), b"torn")
    await store.close()
    following = cluster.store()
    await following.open()
    assert len(await following.recover()) == 2
    assert set(await following.leftovers.graphs()) == {job(4).job_id}
    for number in range(1, 6):
        await following.leftovers.remove_graph(job(number).job_id)
    of_unknown = f"{job(4).job_id}.{epoch}.result"
    assert {path.name for path in cluster.graphs.iterdir()} == {*kept, of_unread_result, of_unknown}
    assert set(await following.leftovers.results()) == {job(4).job_id}
    for number in range(1, 6):
        await following.leftovers.remove_result(job(number).job_id)
    assert {path.name for path in cluster.graphs.iterdir()} == {*kept, of_unread_result}
    assert set(await following.leftovers.results()) == set()


@pytest.mark.req("SAFE-15")
async def test_a_blocklist_that_cannot_be_read_is_kept_when_another_takes_its_place(cluster: Cluster) -> None:
    store = cluster.store()
    await store.open()
    cluster.write(cluster.layout.blocklist, b"torn")
    for revision in (2, 3):
        await store.record_blocklist(Blocklist(revision=revision))
        assert await store.blocklist() == Blocklist(revision=revision)
    assert cluster.read(cluster.layout.damaged_blocklist) == b"torn"
    assert await store.recover() == []


async def test_submissions_with_one_key_at_once_make_one_job(cluster: Cluster) -> None:
    store = cluster.store()
    await store.open()
    ids = await asyncio.gather(*(store.create(job(number, idempotency_key="same")) for number in range(10)))
    assert len(set(ids)) == 1
    assert [stored.job_id for stored in await store.recover()] == [ids[0]]


async def test_a_key_is_known_to_the_next_leader_also_when_the_job_has_ended(cluster: Cluster) -> None:
    store = cluster.store()
    await store.open()
    for number in (1, 2):
        await store.create(job(number))
    await store.record_result(result_of(job(2)))
    await store.close()
    following = cluster.store()
    await following.open()
    for number in (1, 2):
        again = job(number + 10, idempotency_key=job(number).idempotency_key)
        assert await following.create(again) == job(number).job_id


@pytest.mark.req("HA-9")
async def test_a_session_that_expires_is_heard_of_and_followed_by_another(cluster: Cluster, ensemble: Ensemble) -> None:
    session = await connected(cluster.session())
    store = cluster.store_of(session)
    await store.open()
    heard: list[SessionState] = []
    session.listen(heard.append)
    first = session.id
    await expire(session, ensemble.hosts)
    await eventually(lambda: SessionState.LOST in heard and heard[-1] is SessionState.CONNECTED, "a new session")
    assert session.id != first
    assert cluster.direct.exists(cluster.layout.leader) is None, "its address went with it"
    successor = cluster.store()
    await successor.open()
    with pytest.raises(Conflict, match="epoch"):
        await store.create(job(1))


@pytest.mark.req("HA-9")
@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_without_zookeeper_nothing_changes_and_it_goes_on_by_itself(tmp_path: Path, how: str) -> None:
    ensemble = Ensemble(tmp_path / "zookeeper")
    await ensemble.start()
    cluster = Cluster(ensemble.hosts, tmp_path / "graphs")
    try:
        session = cluster.session(session_timeout=120.0, operation_timeout=3.0)  # more than a restart takes anywhere
        store = cluster.store_of(session)
        epoch = await store.open()
        await store.create(job(1))
        states: list[SessionState] = []
        session.listen(states.append)
        ensemble.kill() if how == "killed" else ensemble.freeze()
        with pytest.raises((RetryLater, UnknownOutcome)):
            await store.create(job(2))
        if how == "killed":
            await eventually(lambda: session.state is SessionState.SUSPENDED, "the broken connection is noticed")
            for operation in (store.create(job(3)), store.confirm()):
                with pytest.raises(RetryLater):
                    await operation
            ensemble.launch()
            await ensemble.serving()
        else:
            ensemble.thaw()
        await connected(session)
        assert SessionState.LOST not in states, ensemble.said()
        await _repeated(store, 2)
        assert sorted(int(stored.job_id, 16) for stored in await store.recover()) == [1, 2]
        assert cluster.direct.get(cluster.layout.epoch)[1].version == epoch
    finally:
        await cluster.close()
        ensemble.stop()


@pytest.mark.req("HA-9")
async def test_a_member_of_a_quorum_may_die(tmp_path: Path) -> None:
    ensemble = Ensemble(tmp_path / "zookeeper", 3)
    await ensemble.start()
    cluster = Cluster(ensemble.hosts, tmp_path / "graphs")
    try:
        session = cluster.session(session_timeout=60.0)
        store = cluster.store_of(session)
        await store.open()
        states: list[SessionState] = []
        session.listen(states.append)
        for index in range(3):
            await _repeated(store, index)
            ensemble.kill(index)
            await _repeated(store, 10 + index)
            ensemble.launch(index)
            await ensemble.serving()
        assert SessionState.LOST not in states
        assert len(await _patiently(store)) == 6
    finally:
        await cluster.close()
        ensemble.stop()


async def _repeated(store: ZooKeeperJobStore, number: int) -> None:
    """Submit until it is answered, as a JobManager does."""
    deadline = asyncio.get_running_loop().time() + DEADLINE
    while True:
        try:
            await store.create(job(number))
        except (RetryLater, UnknownOutcome):
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.1)
        else:
            return


async def _patiently(store: ZooKeeperJobStore) -> list[JobId]:
    await connected(store._session)
    return [stored.job_id for stored in await store.recover()]


@pytest.mark.long
async def test_five_thousand_jobs_are_recovered(cluster: Cluster) -> None:
    store = cluster.store()
    await store.open()
    for start in range(0, 5_000, 500):
        await asyncio.gather(*(store.create(job(number)) for number in range(start, start + 500)))
    await store.close()
    following = cluster.store()
    await following.open()
    begin = asyncio.get_running_loop().time()
    stored = await following.recover()
    print(f"5,000 jobs recovered in {asyncio.get_running_loop().time() - begin:.1f} s")
    assert {entry.job_id for entry in stored} == {job(number).job_id for number in range(5_000)}
    assert all(entry.graph is not None for entry in stored)
