"""Backups of embedded clusters: what a restored cluster has, and when nothing is restored."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import socket
import sqlite3
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from emberkeep.adapters.backups import database_restore
from emberkeep.adapters.backups.keys import key_files, own_token
from emberkeep.adapters.backups.names import CA_KEY
from emberkeep.adapters.backups.node_records import Node, Nodes, NodesRecord
from emberkeep.adapters.backups.reading import open_backup
from emberkeep.adapters.backups.staging import Staging
from emberkeep.adapters.backups.verification import verify
from emberkeep.adapters.blobs import directory
from emberkeep.adapters.blobs.directory import DirectoryBlobs
from emberkeep.adapters.job_store.unfinished_restore import RESTORING, UnfinishedRestore, write_unfinished
from emberkeep.backups.continuation import From
from emberkeep.backups.model import ATTEMPTS_SKIPPED, BackupManifest, Member
from emberkeep.base.errors import Conflict, EmberkeepError, Fatal, RetryLater
from emberkeep.base.files.ownership import OwnedPlaceKind, Owner, encode_owner, read_owner
from emberkeep.blobs.model import permanent
from emberkeep.daemons.backups.creating import create
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import DriverHome
from tests.support.backups.sites import CODE, CODE_SHA256, EmbeddedSite, made_savepoint, restored, with_savepoint
from tests.support.contracts.job_store import job, result_of
from tests.unit.daemons.jobmanager.leader import leading

pytestmark = [pytest.mark.anyio, pytest.mark.req("SAFE-23")]

HOME = DriverHome(task_manager="tm-1", node_id="node", instance="instance")  # type: ignore[arg-type]


@pytest.fixture
def old(tmp_path: Path) -> EmbeddedSite:
    return EmbeddedSite(tmp_path / "old", tmp_path / "storage")


@pytest.fixture
def new(tmp_path: Path) -> EmbeddedSite:
    """A cluster elsewhere, with the storage that has survived."""
    return EmbeddedSite(tmp_path / "new", tmp_path / "storage")


async def backed_up(site: EmbeddedSite, target: Path, *, with_keys: bool = True) -> BackupManifest:
    return await create(site.configuration, site.layout, target, with_keys=with_keys)


async def running(site: EmbeddedSite, target: Path, *, with_keys: bool = True) -> None:
    """Back up a cluster that runs, with job 1 in its third attempt and job 2 ended."""
    async with site.led() as store:
        graph = await site.accept(store, 1)
        for attempt in (1, 2, 3):
            await store.record_attempt(graph.job_id, attempt, HOME)
        await store.record_checkpoints(graph.job_id, 3, (site.checkpoint(graph, 5),))
        ended = await site.accept(store, 2)
        await store.record_result(result_of(ended))
        await backed_up(site, target, with_keys=with_keys)


@pytest.mark.parametrize("name", ["backup", "backup.tar"])
async def test_a_new_cluster_has_the_jobs_results_and_files_of_the_lost_one(
    old: EmbeddedSite, new: EmbeddedSite, tmp_path: Path, name: str
) -> None:
    await running(old, tmp_path / name)
    token = old.token()
    shutil.rmtree(old.layout.root)
    plan = await restored(new, tmp_path / name)
    assert plan.done
    assert [(each.name, each.attempt, each.continuation.start) for each in plan.jobs] == [
        ("job 1", 3 + ATTEMPTS_SKIPPED + 1, From.CHECKPOINTS)
    ]
    assert new.token() == token
    async with new.led() as store:
        (stored,) = await store.recover()
        assert stored.graph is not None
        assert stored.graph.artefacts[0].sha256 == CODE_SHA256
        assert (stored.attempt, stored.home, stored.over) == (3 + ATTEMPTS_SKIPPED, None, True)
        assert stored.pointers.queries[0].batch_id == 4
        assert [result.job_id for result in await store.results()] == [job(2).job_id]
        copy = tmp_path / "copy"
        await DirectoryBlobs(Path(new.layout.ha_blobs)).fetch(stored.job_id, permanent(CODE_SHA256), copy)
        assert copy.read_bytes() == CODE


async def test_all_epochs_of_the_new_cluster_are_higher_and_its_job_store_is_another(
    old: EmbeddedSite, new: EmbeddedSite, tmp_path: Path
) -> None:
    await running(old, tmp_path / "backup")
    async with old.led() as store:
        before = store.lineage
        epoch = _epoch(old)
    await restored(new, tmp_path / "backup")
    async with new.led() as store:
        assert store.lineage != before
        assert _epoch(new) > epoch


def _epoch(site: EmbeddedSite) -> int:
    with contextlib.closing(sqlite3.connect(site.layout.job_manager / "jobs.sqlite")) as connection:
        ((epoch,),) = connection.execute("SELECT epoch FROM store")
    return int(epoch)


async def test_the_lost_cluster_cannot_lead_with_its_storage_again(
    old: EmbeddedSite, new: EmbeddedSite, tmp_path: Path
) -> None:
    await running(old, tmp_path / "backup")
    await restored(new, tmp_path / "backup")
    with pytest.raises(Conflict, match="restored from a backup"):
        async with old.led():
            pass
    async with new.led() as store:
        assert len(await store.recover()) == 1


async def test_without_the_storage_a_job_starts_from_its_newest_savepoint(old: EmbeddedSite, tmp_path: Path) -> None:
    savepoints = tmp_path / "savepoints"
    async with old.led() as store:
        graph = await old.accept(store, 1)
        await store.record_attempt(graph.job_id, 1, HOME)
        pointers = [made_savepoint(savepoints, number) for number in (1, 2)]
        await store.record_checkpoints(graph.job_id, 1, (old.checkpoint(graph, 5),), tuple(pointers))
        await backed_up(old, tmp_path / "backup")
    elsewhere = EmbeddedSite(tmp_path / "new", tmp_path / "another storage")
    plan = await restored(elsewhere, tmp_path / "backup")
    newest = str(savepoints / "2")
    assert plan.jobs[0].continuation.savepoint == newest
    async with elsewhere.led() as store:
        (stored,) = await store.recover()
        assert stored.graph == with_savepoint(graph, newest)
        assert stored.pointers == JobPointers(attempt=1, savepoints=tuple(pointers))


@pytest.mark.parametrize("number", [errno.EACCES, errno.ELOOP, errno.ESTALE])
async def test_a_savepoint_that_this_user_cannot_read_is_named_and_does_not_keep_the_cluster_from_being_restored(
    old: EmbeddedSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    savepoints = tmp_path / "savepoints"
    async with old.led() as store:
        graph = await old.accept(store, 1)
        await store.record_attempt(graph.job_id, 1, HOME)
        pointers = [made_savepoint(savepoints, number) for number in (1, 2)]
        await store.record_checkpoints(graph.job_id, 1, (old.checkpoint(graph, 5),), tuple(pointers))
        await backed_up(old, tmp_path / "backup")
    closed = savepoints / "2"
    for name in ("read_bytes", "stat"):
        usual = getattr(Path, name)

        def refuse(path: Path, usual: Callable[..., Any] = usual, **options: Any) -> Any:
            if closed in (path, *path.parents):
                raise OSError(number, os.strerror(number), str(path))
            return usual(path, **options)

        monkeypatch.setattr(Path, name, refuse)
    plan = await restored(EmbeddedSite(tmp_path / "new", tmp_path / "another storage"), tmp_path / "backup")
    found = plan.jobs[0].continuation
    assert found.savepoint == str(savepoints / "1")
    assert f"the newer savepoint {closed} was not examined: it cannot be read from here" in found.notes


async def test_nothing_is_restored_where_a_cluster_is(old: EmbeddedSite, tmp_path: Path) -> None:
    await running(old, tmp_path / "backup")
    with pytest.raises(Conflict, match="there is a job store already"):
        await restored(old, tmp_path / "backup")


async def test_nothing_is_restored_where_a_job_manager_runs(old: EmbeddedSite, tmp_path: Path) -> None:
    await running(old, tmp_path / "backup")
    async with old.led():
        with pytest.raises(Conflict, match="another JobManager"):
            await restored(old, tmp_path / "backup")


async def test_nothing_is_restored_into_the_storage_of_another_cluster(old: EmbeddedSite, tmp_path: Path) -> None:
    await running(old, tmp_path / "backup")
    other = EmbeddedSite(tmp_path / "other", tmp_path / "storage of another")
    async with other.led():
        pass
    mixed = EmbeddedSite(tmp_path / "new", tmp_path / "storage of another")
    with pytest.raises(Conflict, match="not of 'embedded-"):
        await restored(mixed, tmp_path / "backup")
    assert not (mixed.layout.job_manager / "jobs.sqlite").exists()


async def test_a_second_restore_of_one_backup_finds_the_storage_taken(
    old: EmbeddedSite, new: EmbeddedSite, tmp_path: Path
) -> None:
    await running(old, tmp_path / "backup")
    await restored(new, tmp_path / "backup")
    third = EmbeddedSite(tmp_path / "third", tmp_path / "storage")
    with pytest.raises(Conflict, match="another job store since the backup"):
        await restored(third, tmp_path / "backup")


async def test_a_dry_run_changes_nothing(old: EmbeddedSite, new: EmbeddedSite, tmp_path: Path) -> None:
    await running(old, tmp_path / "backup")
    before = read_owner(old.layout.storage_record)
    plan = await restored(new, tmp_path / "backup", apply=False)
    assert not plan.done
    assert not new.layout.root.exists()
    assert read_owner(old.layout.storage_record) == before


async def test_an_interrupted_restore_prevents_a_start_and_continues(
    old: EmbeddedSite, new: EmbeddedSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running(old, tmp_path / "backup")

    def fail(*_: object) -> None:
        raise Fatal("the machine is lost")

    with monkeypatch.context() as patch:
        patch.setattr(database_restore.DatabaseRestore, "complete", fail)
        with pytest.raises(Fatal, match="the machine is lost"):
            await restored(new, tmp_path / "backup")
    with pytest.raises(RetryLater, match="a restore from a backup has not ended"):
        async with new.led():
            pass
    await restored(new, tmp_path / "backup")
    async with new.led() as store:
        assert len(await store.recover()) == 1


async def test_a_restore_that_lacks_only_its_last_step_takes_that_step(
    old: EmbeddedSite, new: EmbeddedSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running(old, tmp_path / "backup")

    def fail(*_: object) -> None:
        raise OSError("the machine is lost")

    with monkeypatch.context() as patch:
        patch.setattr(database_restore, "remove_unfinished", fail)
        with pytest.raises(EmberkeepError, match="the machine is lost"):
            await restored(new, tmp_path / "backup")
    with pytest.raises(RetryLater):
        async with new.led():
            pass
    await restored(new, tmp_path / "backup")
    async with new.led() as store:
        assert len(await store.recover()) == 1


@pytest.mark.parametrize("encryption", ["none", "tls"])
async def test_a_job_manager_that_must_wait_for_a_restore_makes_no_keys_and_no_id(
    tmp_path: Path, encryption: str
) -> None:
    """The restore that continues would find other ones than those that it has to write."""
    record = UnfinishedRestore(manifest_sha256="0" * 64, identity="i")
    place = tmp_path / "state" / "jobmanager"
    place.mkdir(parents=True)
    write_unfinished(place, record)
    settings = {"security.encryption": encryption, "metrics.otlp.endpoint": "http://127.0.0.1:1/v1/metrics"}
    with pytest.raises(RetryLater, match="a restore from a backup has not ended"):
        async with asyncio.timeout(120), leading(tmp_path, settings):
            pass
    assert [path.name for path in (tmp_path / "state").rglob("*") if path.is_file()] == [RESTORING]


async def test_other_keys_are_noticed_before_the_restore_begins(
    old: EmbeddedSite, new: EmbeddedSite, tmp_path: Path
) -> None:
    (ca := key_files(old.layout)[CA_KEY]).parent.mkdir(parents=True)
    ca.write_bytes(b"the key of the lost cluster")
    await running(old, tmp_path / "backup")
    (other := key_files(new.layout)[CA_KEY]).parent.mkdir(parents=True)
    other.write_bytes(b"another key")
    for apply in (False, True):
        with pytest.raises(Conflict, match=f"{other} differs from the one in the backup"):
            await restored(new, tmp_path / "backup", apply=apply)
    assert not new.layout.job_manager.exists()


async def test_nothing_is_restored_beside_the_log_of_an_earlier_job_store(old: EmbeddedSite, tmp_path: Path) -> None:
    """SQLite would read that log as the restored job store's, and continue with the records of the lost one."""
    place, killed = old.layout.job_manager, tmp_path / "killed"
    async with old.led() as store:
        await old.accept(store, 1)
        await backed_up(old, tmp_path / "backup")
        await old.accept(store, 2)
        shutil.copytree(place, killed)
    shutil.rmtree(place)
    killed.rename(place)
    (place / "jobs.sqlite").rename(tmp_path / "moved-away")
    with pytest.raises(Conflict, match=r"there is a job store already: .*jobs\.sqlite-wal"):
        await restored(old, tmp_path / "backup")
    (place / "jobs.sqlite-wal").unlink()
    assert (await restored(old, tmp_path / "backup")).done


async def test_a_listener_at_the_address_of_the_lost_job_manager_prevents_the_restore(
    old: EmbeddedSite, new: EmbeddedSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        record = msgspec.convert({"url": f"http://{address}"}, type=_Url)
        monkeypatch.setattr("emberkeep.daemons.backups.creating.read_cluster", lambda _: record)
        await running(old, tmp_path / "backup")
        with pytest.raises(Conflict, match=f"something listens at {address}"):
            await restored(new, tmp_path / "backup")
        plan = await restored(new, tmp_path / "backup", force=True)
        assert plan.warnings == (f"something listens at {address}",)


class _Url(msgspec.Struct):
    url: str


async def test_without_keys_the_token_must_be_there_first(old: EmbeddedSite, new: EmbeddedSite, tmp_path: Path) -> None:
    await running(old, tmp_path / "backup", with_keys=False)
    with pytest.raises(Fatal, match="the backup has no keys"):
        await restored(new, tmp_path / "backup")
    assert (await restored(new, tmp_path / "backup", new_token=True)).done
    assert own_token(new.layout) is None


async def test_a_backup_of_another_cluster_is_refused(old: EmbeddedSite, new: EmbeddedSite, tmp_path: Path) -> None:
    await running(old, tmp_path / "backup", with_keys=False)
    new.token()
    with pytest.raises(Conflict, match="was not made with the token"):
        await restored(new, tmp_path / "backup")


async def test_a_backup_is_never_overwritten_and_leaves_nothing_beside(old: EmbeddedSite, tmp_path: Path) -> None:
    place = tmp_path / "backups"
    place.mkdir()
    for name in ("backup", "backup.tar"):
        (place / name).write_text("mine")
        async with old.led():
            with pytest.raises(Conflict, match="already exists"):
                await backed_up(old, place / name)
        assert (place / name).read_text() == "mine"
    assert sorted(path.name for path in place.iterdir()) == ["backup", "backup.tar"]


@pytest.mark.parametrize("name", ["backup", "backup.tar"])
async def test_a_name_that_another_backup_takes_while_this_one_is_made_keeps_that_one(
    old: EmbeddedSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async with old.led() as store:
        await old.accept(store, 1)
        usual = Staging.described

        def described(staging: Staging, names: list[str]) -> tuple[Member, ...]:
            monkeypatch.undo()
            asyncio.run(backed_up(old, tmp_path / name))
            return usual(staging, names)

        monkeypatch.setattr(Staging, "described", described)
        with pytest.raises(Conflict, match="already exists"):
            await backed_up(old, tmp_path / name)
    reader = open_backup(tmp_path / name)
    assert verify(reader, old.token()).is_sound
    reader.close()
    assert not list(tmp_path.glob("*.partial*"))


@pytest.mark.parametrize(
    ("instead", "problem"),
    [(None, "its job graph"), ("/proc/self/mem", "Input/output error")],  # the first page of that cannot be read: EIO
)
async def test_a_graph_that_is_lost_or_unreadable_does_not_prevent_the_backup_of_other_jobs(
    old: EmbeddedSite, tmp_path: Path, instead: str | None, problem: str
) -> None:
    async with old.led() as store:
        lost, kept = await old.accept(store, 1), await old.accept(store, 2)
        (path,) = old.layout.graphs.glob(f"*/{lost.job_id}.graph")
        path.unlink()
        if instead is not None:
            path.symlink_to(instead)
        manifest = await backed_up(old, tmp_path / "backup")
    assert [(each.job_id, bool(each.problem)) for each in manifest.jobs] == [(lost.job_id, True), (kept.job_id, False)]
    assert problem in manifest.lacks[0]


async def test_a_file_of_a_job_that_the_disk_cannot_read_does_not_prevent_the_backup(
    old: EmbeddedSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(source: Path, *_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(source))

    async with old.led() as store:
        graph = await old.accept(store, 1)
        monkeypatch.setattr(directory, "copy_file", unreadable)
        manifest = await backed_up(old, tmp_path / "backup")
    ((job_id, problem),) = ((each.job_id, each.problem) for each in manifest.jobs)
    assert job_id == graph.job_id
    assert "Input/output error" in problem


async def test_a_member_that_the_disk_cannot_read_is_named(old: EmbeddedSite, tmp_path: Path) -> None:
    await running(old, tmp_path / "backup")
    blob = tmp_path / "backup" / "blobs" / CODE_SHA256
    blob.unlink()
    blob.symlink_to("/proc/self/mem")  # its first page cannot be read: EIO
    reader = open_backup(tmp_path / "backup")
    (damage,) = verify(reader, old.token()).damages
    assert damage.member == f"blobs/{CODE_SHA256}"
    assert "Input/output error" in damage.what


async def test_a_damaged_record_of_an_upgrade_does_not_prevent_a_backup(
    old: EmbeddedSite, new: EmbeddedSite, tmp_path: Path
) -> None:
    async with old.led() as store:
        await old.accept(store, 1)
    with contextlib.closing(sqlite3.connect(old.layout.job_manager / "jobs.sqlite")) as connection, connection:
        connection.execute("INSERT INTO upgrades (upgrade_id, record) VALUES (?, ?)", ("u" * 32, b"torn"))
    manifest = await backed_up(old, tmp_path / "backup")
    assert "u" * 32 in manifest.lacks[0]
    assert (await restored(new, tmp_path / "backup")).done
    async with new.led() as store:
        assert len(await store.recover()) == 1


def test_a_damaged_record_of_an_upgrade_in_zookeeper_does_not_prevent_a_backup() -> None:
    owner = encode_owner(
        Owner(cluster_id="c", kind=OwnedPlaceKind.ZOOKEEPER, created_at_ms=1, place_id="p", belongs_to="")
    )
    nodes = (Node(path="owner", data=owner), Node(path=f"upgrades/{'u' * 32}", data=b"torn"))
    copy = Nodes(NodesRecord(epoch=1, nodes=nodes), "nodes").copied()
    assert copy.upgrades == ()
    assert "u" * 32 in copy.unreadable[0]


async def test_a_damaged_job_store_is_named_and_leaves_no_backup(old: EmbeddedSite, tmp_path: Path) -> None:
    async with old.led() as store:
        await old.accept(store, 1)
    path = old.layout.job_manager / "jobs.sqlite"
    path.write_bytes(b"not a database" + path.read_bytes()[14:])
    with pytest.raises(Fatal, match=f"{path}: damaged"):
        await backed_up(old, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


async def test_a_storage_that_is_not_mounted_is_not_taken_for_an_empty_one(old: EmbeddedSite, tmp_path: Path) -> None:
    async with old.led() as store:
        await old.accept(store, 1)
        old.layout.storage.rename(tmp_path / "away")
        with pytest.raises(RetryLater, match="cannot be read now"):
            await backed_up(old, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


async def test_a_place_of_blobs_that_is_not_mounted_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    place = tmp_path / "blobs"
    site = EmbeddedSite(tmp_path / "old", tmp_path / "storage", blobs=place)
    async with site.led() as store:
        await site.accept(store, 1)
        assert not (await backed_up(site, tmp_path / "first")).lacks
        place.rename(tmp_path / "away")
        place.mkdir()
        with pytest.raises(RetryLater, match=f"{place} is empty or does not exist"):
            await backed_up(site, tmp_path / "second")
    assert not (tmp_path / "second").exists()


async def test_a_backup_has_no_pickle_and_says_what_it_is(old: EmbeddedSite, tmp_path: Path) -> None:
    await running(old, tmp_path / "backup.tar")
    with tarfile.open(tmp_path / "backup.tar") as archive:
        names = archive.getnames()
        manifest = archive.extractfile("manifest.record")
        assert manifest is not None
        header, _, payload = manifest.read().partition(b"\n")
    assert names[-1] == "manifest.record", "the manifest completes the backup"
    assert header.split()[:3] == [b"emberkeep-record", b"backup", b"1"]
    assert json.loads(payload)["jobs"][0]["name"] == "job 1"
    assert f"blobs/{CODE_SHA256}" in names


def _flip(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


class TestVerify:
    """What is damaged is named."""

    async def test_a_sound_backup(self, old: EmbeddedSite, tmp_path: Path) -> None:
        await running(old, tmp_path / "backup")
        found = verify(open_backup(tmp_path / "backup"), old.token())
        assert (found.damages, found.sealed, found.is_sound) == ((), True, True)
        assert verify(open_backup(tmp_path / "backup"), "x" * 40).is_sound is False

    @pytest.mark.parametrize(
        ("change", "what"),
        [
            (lambda path: path.write_bytes(path.read_bytes()[:-1]), "bytes, not the"),
            (_flip, "differs from what was written"),
            (lambda path: path.unlink(), "is missing"),
        ],
    )
    async def test_each_file_is_checked(
        self, old: EmbeddedSite, tmp_path: Path, change: Callable[[Path], object], what: str
    ) -> None:
        backup = tmp_path / "backup"
        await running(old, backup)
        names = sorted(str(path.relative_to(backup)) for path in backup.rglob("*") if path.is_file())
        for name in names:
            if name.startswith("manifest"):
                continue
            copy = tmp_path / "damaged"
            shutil.copytree(backup, copy)
            change(copy / name)
            (damage,) = verify(open_backup(copy), None).damages
            assert damage.member == name
            assert what in damage.what
            shutil.rmtree(copy)

    async def test_a_backup_without_its_manifest_is_not_complete(self, old: EmbeddedSite, tmp_path: Path) -> None:
        await running(old, tmp_path / "backup")
        (tmp_path / "backup" / "manifest.record").unlink()
        (damage,) = verify(open_backup(tmp_path / "backup"), None).damages
        assert "is not a complete backup" in damage.what
        with pytest.raises(Fatal):
            await restored(EmbeddedSite(tmp_path / "new", tmp_path / "s"), tmp_path / "backup")

    async def test_a_torn_archive(self, old: EmbeddedSite, tmp_path: Path) -> None:
        await running(old, tmp_path / "backup.tar")
        data = (tmp_path / "backup.tar").read_bytes()
        (tmp_path / "torn.tar").write_bytes(data[: len(data) // 2])
        try:
            found = verify(open_backup(tmp_path / "torn.tar"), None)
        except Fatal:
            return
        assert found.damages

    async def test_a_stranger_in_the_directory(self, old: EmbeddedSite, tmp_path: Path) -> None:
        await running(old, tmp_path / "backup")
        (tmp_path / "backup" / "blobs" / ("0" * 64)).write_text("planted")
        (damage,) = verify(open_backup(tmp_path / "backup"), None).damages
        assert damage.what == "does not belong to this backup"
