"""While the shared storage is known to be away nothing is put in its place, and nothing is concluded from it."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from emberkeep.adapters.blobs.directory import DirectoryBlobs
from emberkeep.adapters.blobs.watched import WatchedBlobs
from emberkeep.adapters.shared_storage.cluster import ClusterStorage
from emberkeep.adapters.shared_storage.store_origin import StoreOrigin
from emberkeep.adapters.shared_storage.watch import NEARLY_FULL, StorageWatch
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.high_availability import HA_CLUSTER_ID, HA_TYPE
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Unavailable
from emberkeep.base.ids import JobId
from emberkeep.jobs.model import AttemptOutcome, DriverHome, FailureKind, JobStatus
from tests.support.contracts.local_store import ONE, blob
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import graph
from tests.unit.jobmanager.memory_store import FailingStore


def watching(layout: StateLayout) -> StorageWatch:
    return StorageWatch(layout, ClusterStorage(layout, lambda: 1), now_ms=lambda: 1)


@pytest.mark.anyio
@pytest.mark.req("SAFE-1")
async def test_a_storage_that_jobs_have_used_is_missed_by_the_next_process_and_not_made_anew(tmp_path: Path) -> None:
    watch = watching(StateLayout(tmp_path, Configuration()))
    blobs = WatchedBlobs(DirectoryBlobs(tmp_path / "storage" / "blobs"), lambda: watch.problem)
    key, content = blob("a")
    file = tmp_path / "file"
    file.write_bytes(content)
    await watch.look()
    assert await blobs.listing() == {}, "a first start"
    await watch.expect()
    for use in (blobs.put(ONE, key, file), blobs.listing(), blobs.size(ONE, key), blobs.delete_owner(ONE)):
        with pytest.raises(Unavailable, match="cannot be read here now"):
            await use
    assert not (tmp_path / "storage").exists()
    (tmp_path / "storage" / "graphs").mkdir(parents=True)
    await watch.look()
    await blobs.put(ONE, key, file)
    assert await blobs.size(ONE, key) == len(content)


@pytest.mark.anyio
@pytest.mark.req("SAFE-2")
@pytest.mark.parametrize("mode", ["embedded", "zookeeper"])
async def test_a_storage_counts_as_held_from_its_ownership_record_on(tmp_path: Path, mode: str) -> None:
    texts = {HA_TYPE.key: mode, HA_CLUSTER_ID.key: "north"}
    layout = StateLayout(tmp_path, Configuration().with_texts(texts, "test"))
    layout.storage.mkdir()
    watch = watching(layout)
    assert not (await watch.look()).own
    ClusterStorage(layout, lambda: 1).settle(StoreOrigin(identity="1", storage="", was_led=False))
    assert (await watch.look()).own
    layout.storage.rename(tmp_path / "unmounted")
    layout.storage.mkdir()
    assert not (await watch.look()).own
    assert watch.problem


@pytest.mark.anyio
@pytest.mark.req("SAFE-1", "SAFE-6")
@pytest.mark.parametrize("mode", ["embedded", "zookeeper"])
async def test_an_empty_mount_point_takes_no_jobs_also_of_a_job_store_without_jobs(tmp_path: Path, mode: str) -> None:
    texts = {HA_TYPE.key: mode, HA_CLUSTER_ID.key: "north"}
    layout = StateLayout(tmp_path, Configuration().with_texts(texts, "test"))
    origin = StoreOrigin(identity="1", storage="", was_led=False)
    place_id = ClusterStorage(layout, lambda: 1).settle(origin)
    layout.storage.rename(tmp_path / "unmounted")
    layout.storage.mkdir()
    storage = ClusterStorage(layout, lambda: 1)
    watch = StorageWatch(layout, storage, now_ms=lambda: 1)
    assert storage.settle(StoreOrigin(identity="1", storage=place_id, was_led=True)) == ""
    await watch.look()
    assert watch.problem
    storage.adopt()
    await watch.look()
    assert not watch.problem


@pytest.mark.anyio
@pytest.mark.req("SAFE-1")
async def test_a_storage_that_cannot_be_looked_at_does_not_end_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = StateLayout(tmp_path, Configuration())
    layout.storage.mkdir()
    watch = watching(layout)

    def stale(path: Path, *_: object, **__: object) -> NoReturn:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))

    with monkeypatch.context() as patch:
        for name in ("read_bytes", "stat", "iterdir"):
            patch.setattr(Path, name, stale)
        assert not (await watch.look()).own
    assert watch.problem
    await watch.look()
    assert not watch.problem


@pytest.mark.anyio
async def test_it_is_known_since_when_the_storage_is_away_or_nearly_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, now = StateLayout(tmp_path, Configuration()), iter(range(1, 100))
    layout.storage.mkdir()
    watch = StorageWatch(layout, ClusterStorage(layout, lambda: 1), now_ms=lambda: next(now))
    ClusterStorage(layout, lambda: 1).settle(StoreOrigin(identity="1", storage="", was_led=False))
    free = [NEARLY_FULL]
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free[0]))
    await watch.look()
    assert (watch.problem_since_ms, watch.low_since_ms) == (0, 0)
    free[0] -= 1
    await watch.look()
    await watch.look()
    assert watch.low_since_ms == 1
    layout.storage.rename(tmp_path / "unmounted")
    layout.storage.mkdir()
    await watch.look()
    await watch.look()
    assert (watch.problem_since_ms, watch.low_since_ms) == (2, 1)
    layout.storage.rmdir()
    (tmp_path / "unmounted").rename(layout.storage)
    free[0] += 1
    await watch.look()
    assert (watch.problem_since_ms, watch.low_since_ms) == (0, 0)


class Storage:
    def __init__(self) -> None:
        self.problem, self.problem_since_ms = "", 0
        self.expected = 0

    async def expect(self) -> None:
        self.expected += 1


@pytest.mark.req("SAFE-1")
def test_no_job_is_accepted_without_storage_and_recovered_ones_are_looked_for() -> None:
    async def scenario() -> None:
        storage = Storage()
        cluster = SmallCluster(FailingStore(), storage=storage)
        async with cluster.leading() as service:
            storage.problem = "the shared storage cannot be read here now"
            with pytest.raises(Unavailable, match="cannot be read here now"):
                await service.gateway.submit(graph(1))
            storage.problem = ""
            await service.gateway.submit(graph(1))
        assert storage.expected == 0
        async with cluster.leading():
            assert storage.expected == 1

    in_virtual_time(scenario)


AWAY = "the shared storage cannot be read here now"
KILLED = AttemptOutcome(exit_code=137, kind=FailureKind.LOST, message="killed by SIGKILL")


async def held(cluster: SmallCluster, storage: Storage, job_id: JobId) -> None:
    """The driver of attempt 1 is lost while the storage is away."""
    storage.problem = AWAY
    cluster.task_managers[0].exits(job_id, 1, KILLED)
    await cluster.holds(lambda: not cluster.host(job_id, 1))
    await asyncio.sleep(600.0)
    assert not cluster.host(job_id, 2)
    assert (await cluster.view(job_id)).waiting == f"its storage: {AWAY}"


@pytest.mark.req("SAFE-1")
def test_the_next_attempt_is_held_until_the_storage_is_back() -> None:
    async def scenario() -> None:
        storage = Storage()
        cluster = SmallCluster(FailingStore(), storage=storage)
        async with cluster.leading():
            await cluster.add()
            await cluster.run_job(1)
            await held(cluster, storage, graph(1).job_id)
            storage.problem = ""
            await cluster.next_jobmaster(graph(1).job_id, 2)
            view = await cluster.reaches(graph(1).job_id, JobStatus.RUNNING)
            assert (view.waiting, len(view.attempts)) == ("", 2)

    in_virtual_time(scenario)


@pytest.mark.req("SAFE-1")
def test_a_job_that_is_held_can_be_cancelled() -> None:
    async def scenario() -> None:
        storage = Storage()
        cluster = SmallCluster(FailingStore(), storage=storage)
        async with cluster.leading() as service:
            await cluster.add()
            await cluster.run_job(1)
            await held(cluster, storage, graph(1).job_id)
            await service.gateway.cancel(graph(1).job_id)
            await cluster.reaches(graph(1).job_id, JobStatus.CANCELED)
            assert storage.problem

    in_virtual_time(scenario)


class GoesAway(FailingStore):
    """The storage goes away as an attempt is recorded."""

    def __init__(self, storage: Storage) -> None:
        super().__init__()
        self._storage = storage

    async def record_attempt(self, job_id: JobId, attempt: int, home: DriverHome | None = None) -> None:
        await super().record_attempt(job_id, attempt, home)
        self._storage.problem = AWAY


@pytest.mark.req("SAFE-1")
def test_no_start_is_ordered_while_the_storage_is_away() -> None:
    async def scenario() -> None:
        storage = Storage()
        cluster = SmallCluster(GoesAway(storage), storage=storage)
        async with cluster.leading() as service:
            await cluster.add()
            await service.gateway.submit(graph(1))
            await cluster.reaches(graph(1).job_id, JobStatus.INITIALIZING)
            await asyncio.sleep(5.0)
            assert not cluster.host(graph(1).job_id, 1)
            storage.problem = ""
            await cluster.next_jobmaster(graph(1).job_id, 1)

    in_virtual_time(scenario)
