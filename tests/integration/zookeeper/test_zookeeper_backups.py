"""Backups of a job store in ZooKeeper: made while a leader writes, restored into an empty root."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from emberkeep.adapters.backups import nodes_restore
from emberkeep.adapters.backups.nodes_copy import NodesCopy
from emberkeep.adapters.backups.nodes_restore import NodesRestore
from emberkeep.adapters.backups.reading import open_backup
from emberkeep.adapters.blobs.directory import DirectoryBlobs
from emberkeep.adapters.http.token_file import load_or_create_token
from emberkeep.adapters.shared_storage.cluster import ClusterStorage
from emberkeep.adapters.zookeeper.access.settings import session_settings
from emberkeep.adapters.zookeeper.layout import zookeeper_layout
from emberkeep.adapters.zookeeper.session import Znode, ZooKeeperSession
from emberkeep.adapters.zookeeper.store import ZooKeeperJobStore
from emberkeep.backups.continuation import From, RestorePlan
from emberkeep.backups.model import ATTEMPTS_SKIPPED, EPOCHS_SKIPPED, BackupManifest
from emberkeep.base.clock import SystemClock
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.directories import STATE_DIRECTORY, STORAGE_DIRECTORY
from emberkeep.base.configuration.options.high_availability import (
    HA_CLUSTER_ID,
    HA_TYPE,
    ZOOKEEPER_QUORUM,
    ZOOKEEPER_ROOT,
)
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Conflict, Fatal, RetryLater
from emberkeep.base.files.ownership import read_owner
from emberkeep.base.ids import JobId, SystemIds, TaskManagerId
from emberkeep.blobs.model import permanent
from emberkeep.blocklist.model import Blocklist
from emberkeep.daemons.backups.creating import create
from emberkeep.daemons.backups.restoring import RestoreRequest, restore
from emberkeep.daemons.backups.zookeeper import zookeeper_session
from emberkeep.jobs.checkpoints import QueryCheckpoint, SavepointPointer
from emberkeep.jobs.model import (
    Artefact,
    ArtefactRole,
    AttemptOutcome,
    AttemptRecord,
    DriverHome,
    FailureKind,
    JobGraph,
    JobStatus,
)
from emberkeep.jobs.upgrades.model import Upgrade
from tests.integration.zookeepers import Ensemble, connected
from tests.support.contracts.job_store import job, result_of, upgrade
from tests.support.contracts.token_store import TOKENS

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.req("SAFE-23")]

CODE = b"print('a job')\n"
HOME = DriverHome(task_manager="tm-1", node_id="node", instance="instance")  # type: ignore[arg-type]

_numbers = itertools.count()


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    ensemble = Ensemble(tmp_path_factory.mktemp("zookeeper"))
    try:
        asyncio.run(ensemble.start())
        yield ensemble
    finally:
        ensemble.stop()


class Site:
    """A cluster's state directory, its root in ZooKeeper, and the storage, which another cluster may have used."""

    def __init__(self, ensemble: Ensemble, place: Path, state: str, storage: str = "storage") -> None:
        texts = {
            HA_TYPE.key: "zookeeper",
            HA_CLUSTER_ID.key: "c",
            ZOOKEEPER_QUORUM.key: ensemble.hosts,
            ZOOKEEPER_ROOT.key: f"root-{next(_numbers)}",
            STATE_DIRECTORY.key: str(place / state),
            STORAGE_DIRECTORY.key: str(place / storage),
        }
        self.configuration = Configuration().with_texts(texts, "test")
        self.layout = StateLayout(place / state, self.configuration)

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[ZooKeeperSession]:
        session = ZooKeeperSession(session_settings(self.configuration, load_or_create_token(self.layout.token_file)))
        session.start()
        try:
            await connected(session)
            yield session
        finally:
            await session.close()

    @contextlib.asynccontextmanager
    async def led(self) -> AsyncIterator[tuple[ZooKeeperJobStore, int]]:
        """The job store and the epoch, while a JobManager leads."""
        async with self.session() as session:
            store = ZooKeeperJobStore(
                session,
                zookeeper_layout(self.configuration),
                self.layout.graphs,
                SystemIds(),
                address="127.0.0.1:1",
                storage=ClusterStorage(self.layout, SystemClock().now_ms),
            )
            epoch = await store.open()
            try:
                yield store, epoch
            finally:
                await store.close()

    async def accept(self, store: ZooKeeperJobStore, number: int) -> JobGraph:
        """Accept a job with one file."""
        source = self.layout.root / "app.py"
        source.write_bytes(CODE)
        digest = _sha256()
        script = Artefact(role=ArtefactRole.SCRIPT, name="app.py", sha256=digest, size=len(CODE))
        graph = job(number, artefacts=(script,))
        await DirectoryBlobs(Path(self.layout.ha_blobs)).put(graph.job_id, permanent(digest), source)
        await store.create(graph)
        return graph

    async def backed_up(self, target: Path) -> BackupManifest:
        return await create(self.configuration, self.layout, target, with_keys=True)

    async def restored(self, backup: Path) -> RestorePlan:
        reader = open_backup(backup)
        try:
            request = RestoreRequest(apply=True, force=False, new_token=False)
            return await restore(self.configuration, self.layout, reader, request)
        finally:
            reader.close()


def _sha256() -> str:

    return hashlib.sha256(CODE).hexdigest()


@pytest.fixture
def old(ensemble: Ensemble, tmp_path: Path) -> Site:
    return Site(ensemble, tmp_path, "old")


@pytest.fixture
def new(ensemble: Ensemble, tmp_path: Path) -> Site:
    return Site(ensemble, tmp_path, "new")


async def running(site: Site, target: Path) -> tuple[list[JobGraph], int]:
    """Back up a cluster that runs jobs 1 and 3; job 2 has ended."""
    async with site.led() as (store, epoch):
        graphs = [await site.accept(store, number) for number in (3, 1)]
        ended = await site.accept(store, 2)
        for graph in graphs:
            await store.record_attempt(graph.job_id, 7, HOME)
        place = site.layout.checkpoints / graphs[0].job_id / "0"
        (place / "commits").mkdir(parents=True)
        (place / "commits" / "4").touch()
        checkpoint = QueryCheckpoint(
            query="0", query_id="id", location=str(place), batch_id=4, triggered_ms=1, committed_ms=2
        )
        await store.record_checkpoints(graphs[0].job_id, 7, (checkpoint,))
        await store.record_result(result_of(ended))
        await store.tokens.record(TOKENS)
        await site.backed_up(target)
    return graphs, epoch


@pytest.mark.parametrize("name", ["backup", "backup.tar"])
async def test_an_empty_root_gets_all_records_of_the_lost_one(old: Site, new: Site, tmp_path: Path, name: str) -> None:
    graphs, epoch = await running(old, tmp_path / name)
    plan = await new.restored(tmp_path / name)
    assert [each.continuation.start for each in plan.jobs] == [From.CHECKPOINTS, From.BEGINNING]
    async with new.led() as (store, now):
        assert now > epoch + EPOCHS_SKIPPED
        stored = await store.recover()
        assert [each.graph for each in stored] == graphs, "in the order in which they were submitted"
        assert [(each.attempt, each.home, each.over) for each in stored] == [(7 + ATTEMPTS_SKIPPED, None, True)] * 2
        assert stored[0].pointers.queries[0].batch_id == 4
        assert [result.job_id for result in await store.results()] == [job(2).job_id]
        assert await store.create(job(2)) == job(2).job_id, "its idempotency key is known"
        assert await store.tokens.read() == TOKENS
        assert await store.blocklist() == Blocklist()
        with pytest.raises(Conflict):
            await store.record_attempt(graphs[0].job_id, 7 + ATTEMPTS_SKIPPED, HOME)


async def test_the_lost_cluster_cannot_lead_with_its_storage_again(old: Site, new: Site, tmp_path: Path) -> None:
    await running(old, tmp_path / "backup")
    await new.restored(tmp_path / "backup")
    with pytest.raises(Conflict, match="restored from a backup"):
        async with old.led():
            pass


async def test_nothing_is_restored_into_a_root_that_is_used(old: Site, tmp_path: Path) -> None:
    await running(old, tmp_path / "backup")
    with pytest.raises(Conflict, match="there is a job store already"):
        await old.restored(tmp_path / "backup")
    async with old.led():
        with pytest.raises(Conflict, match="a JobManager leads"):
            await old.restored(tmp_path / "backup")


async def test_an_interrupted_restore_lets_nobody_lead_and_continues(
    old: Site, new: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs, _ = await running(old, tmp_path / "backup")

    async def fail(*_: object) -> None:
        raise Fatal("the machine is lost")

    for step in ("complete", "_write"):
        with monkeypatch.context() as patch:
            patch.setattr(NodesRestore, step, fail)
            with pytest.raises(Fatal, match="the machine is lost"):
                await new.restored(tmp_path / "backup")
        with pytest.raises(RetryLater, match="a restore from a backup has not ended"):
            async with new.led():
                pass
    await new.restored(tmp_path / "backup")
    async with new.led() as (store, _):
        assert [each.graph for each in await store.recover()] == graphs


class _Died(Exception):
    """The restore's process has died."""


def _dies_after(patch: pytest.MonkeyPatch, number: int) -> None:
    """Let a process die after its write ``number`` to ZooKeeper, counted from 0."""
    written = itertools.count()

    def dying(usual: Callable[..., Any]) -> Callable[..., Any]:
        async def write(*arguments: Any, **options: Any) -> Any:
            result = await usual(*arguments, **options)
            if next(written) == number:
                raise _Died
            return result

        return write

    for name in ("create", "commit", "delete"):
        patch.setattr(ZooKeeperSession, name, dying(getattr(ZooKeeperSession, name)))


async def test_a_restore_that_dies_after_any_write_to_zookeeper_continues(
    ensemble: Ensemble, old: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it has begun, nothing has changed; then no JobManager leads until it has ended."""
    graphs, _ = await running(old, tmp_path / "backup")
    token = load_or_create_token(old.layout.token_file)
    owner = read_owner(old.layout.storage_record)
    monkeypatch.setattr(nodes_restore, "EPOCHS_SKIPPED", 600)  # two transactions, which is enough to see
    begun = []
    for number in itertools.count():
        new = Site(ensemble, tmp_path, f"new-{number}", f"storage-{number}")
        shutil.copytree(old.layout.storage, new.layout.storage)
        with monkeypatch.context() as patch, contextlib.suppress(_Died):
            _dies_after(patch, number)
            await new.restored(tmp_path / "backup")
            break
        async with zookeeper_session(new.configuration, token) as session:
            nodes = zookeeper_layout(new.configuration)
            begun.append(await session.exists(nodes.restoring))
            ended = number and not begun[-1] and begun[-2]
            if begun[-1]:
                store = ZooKeeperJobStore(session, nodes, new.layout.graphs, SystemIds(), address="127.0.0.1:1")
                with pytest.raises(RetryLater, match="a restore from a backup has not ended"):
                    await store.open()
            elif not ended:
                assert not new.layout.root.exists(), "nothing tells that the restore has begun"
                assert read_owner(new.layout.storage_record) == owner
        if not ended:
            await new.restored(tmp_path / "backup")
        async with new.led() as (restored_store, _):
            assert [each.graph for each in await restored_store.recover()] == graphs
    assert begun == [*sorted(begun[:-1]), False], "it begins once, and its last write ends it"
    assert begun.count(True) > 4


@pytest.mark.parametrize("folder", ["upgrades", "currentJobs", "attempts", "checkpoints", "results", "damaged"])
async def test_a_job_that_ends_while_the_nodes_are_read_is_in_the_backup_once(
    old: Site, new: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """Whatever was read when it ended: the job has ended in the backup as well, or it is still to be recovered."""
    async with old.led() as (store, _):
        graph = await old.accept(store, 1)
        await store.record_attempt(graph.job_id, 1, HOME)
        original = NodesCopy._below
        ends = True

        async def below(self: NodesCopy, read: str) -> list[Znode]:
            nonlocal ends
            found = await original(self, read)
            if ends and read == folder:
                ends = False
                await store.record_result(result_of(graph))
            return found

        monkeypatch.setattr(NodesCopy, "_below", below)
        manifest = await old.backed_up(tmp_path / "backup")
    assert not manifest.lacks
    await new.restored(tmp_path / "backup")
    async with new.led() as (store, _):
        live = [each.job_id for each in await store.recover()]
        ended = [JobId(result.job_id) for result in await store.results()]
        assert sorted(live + ended) == [graph.job_id]


@pytest.mark.parametrize("traceback", ["short", "of a large result\n" * 10_000], ids=["node", "file"])
async def test_no_record_leads_to_where_the_storage_was(
    old: Site, ensemble: Ensemble, tmp_path: Path, traceback: str
) -> None:
    new = Site(ensemble, tmp_path, "new", "moved")
    outcome = AttemptOutcome(exit_code=1, kind=FailureKind.SCRIPT, message="failed", traceback=traceback)

    def made(site: Site) -> SavepointPointer:
        return SavepointPointer(path=str(site.layout.savepoints / "1"), manifest_sha256="0" * 64, created_ms=1)

    def record(site: Site) -> Upgrade:
        return upgrade(5, savepoint=made(site).path, target_directory=str(site.layout.savepoints))

    async with old.led() as (store, _):
        running, ended = await old.accept(store, 1), await old.accept(store, 2)
        for graph in (running, ended):
            await store.record_attempt(graph.job_id, 1, HOME)
            await store.record_checkpoints(graph.job_id, 1, (), (made(old),))
        attempt = AttemptRecord(attempt=1, task_manager=TaskManagerId("tm-1"), started_ms=1, outcome=outcome)
        await store.record_result(msgspec.structs.replace(result_of(ended, JobStatus.FAILED), attempts=(attempt,)))
        await store.record_upgrade(record(old))
        await old.backed_up(tmp_path / "backup")
    old.layout.storage.rename(new.layout.storage)
    await new.restored(tmp_path / "backup")
    async with new.led() as (store, _):
        (stored,) = await store.recover()
        assert stored.pointers.savepoints == (made(new),)
        (result,) = await store.results()
        assert result.savepoints == (made(new),)
        assert result.attempts[0].outcome == outcome
        assert await store.upgrades() == [record(new)]
    assert not old.layout.storage.exists()
