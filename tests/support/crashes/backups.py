"""The durable steps of making backups of a cluster, and of restoring one."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from emberkeep.adapters.backups.keys import key_files
from emberkeep.adapters.backups.reading import open_backup
from emberkeep.adapters.backups.verification import verify
from emberkeep.adapters.blobs.ha_store import open_blob_storage
from emberkeep.adapters.job_store.embedded import EmbeddedJobStore
from emberkeep.adapters.job_store.unfinished_restore import RESTORING, read_unfinished
from emberkeep.base.cluster_identity import read_drawn_id
from emberkeep.base.errors import RetryLater
from emberkeep.base.files.ownership import is_owner_file, read_owner
from emberkeep.blobs.model import permanent
from emberkeep.daemons.backups.creating import create
from emberkeep.jobs.model import DriverHome
from tests.support.backups.sites import CODE, CODE_SHA256, EmbeddedSite, restored
from tests.support.contracts.job_store import job, result_of
from tests.support.crashes.component import Component
from tests.support.crashes.followed import FollowedFiles, after_each_statement
from tests.support.crashes.recorded import Crash

BACKUP = "backup"
_DATABASE = "jobs.sqlite"
_NAMES = ("backup", "backup.tar")
_SIZES = range(4096, 40 * 4096, 3 * 4096)  # from the first page of the job store to more than an archive has
_HOME = DriverHome(task_manager="tm-1", node_id="node", instance="instance")  # type: ignore[arg-type]


def _files(top: Path) -> dict[str, bytes]:
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


class LostCluster:
    """A cluster beside the disk that is tried. It has one job that runs and one that has ended, and backups."""

    def __init__(self, disk: Path) -> None:
        place = disk.parent / "cluster"
        self.site = EmbeddedSite(place / "state", place / "storage")
        self.backups = place / "backups"
        if not place.exists():
            asyncio.run(self._make())

    async def _make(self) -> None:
        site = self.site
        async with site.led() as store:
            graph = await site.accept(store, 1)
            await store.record_attempt(graph.job_id, 3, _HOME)
            await store.record_checkpoints(graph.job_id, 3, (site.checkpoint(graph, 2),))
            await store.record_result(result_of(await site.accept(store, 2)))
        for path in key_files(site.layout).values():
            if not path.exists():  # a restore copies what is there
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"a key")
        self.backups.mkdir()
        for name in _NAMES:
            await self.back_up(self.backups / name)

    async def back_up(self, target: Path) -> None:
        await create(self.site.configuration, self.site.layout, target, with_keys=True)


# --- making backups ---------------------------------------------------------------------------------------------------


def given_older(root: Path) -> None:
    shutil.copytree(LostCluster(root).backups, root / "older")


def live_backups(root: Path, files: FollowedFiles) -> None:
    cluster = LostCluster(root)
    files.follow(root / ".backup*.partial" / f"{_DATABASE}-*", root / ".backup*.partial" / _DATABASE)
    with after_each_statement(files):
        for name in _NAMES:
            asyncio.run(cluster.back_up(root / name))
            files.mark(name)


def check_backups(crash: Crash) -> None:
    """Whatever has the name of a backup is whole. Older ones stay, and one that is missing can be made."""
    cluster = LostCluster(crash.directory)
    assert _files(crash.directory / "older") == _files(cluster.backups), "an older backup has changed"
    missing = [name for name in _NAMES if not (crash.directory / name).exists()]
    assert not set(missing) & set(crash.marks), f"{missing} are gone"
    for name in missing[:1]:
        asyncio.run(cluster.back_up(crash.directory / name))
    for name in {*_NAMES} - {*missing[1:]}:
        _check_backup(crash.directory / name, cluster)


def _check_backup(path: Path, cluster: LostCluster) -> None:
    reader = open_backup(path)
    try:
        found = verify(reader, cluster.site.token())
    finally:
        reader.close()
    assert found.is_sound, f"{path.name}: {found.damages}"
    assert found.manifest is not None
    assert not found.manifest.lacks
    assert [each.job_id for each in found.manifest.jobs] == [job(1).job_id]
    assert found.manifest.has_keys


# --- restoring one ----------------------------------------------------------------------------------------------------


class RestoreLife:
    """A restore with the lost cluster's storage, or into new storage, with its BLOBs elsewhere."""

    def __init__(self, *, survives: bool) -> None:
        self._survives = survives

    def _site(self, root: Path) -> EmbeddedSite:
        return EmbeddedSite(root / "state", root / "storage", blobs=None if self._survives else root / "blobs")

    def given(self, root: Path) -> None:
        cluster = LostCluster(root)
        if self._survives:
            shutil.copytree(cluster.site.layout.storage, root / "storage")

    def live(self, root: Path, files: FollowedFiles) -> None:
        site = self._site(root)
        database = site.layout.job_manager / f".{_DATABASE}.restored"
        files.follow(database.with_name(f"{database.name}-journal"), database)
        with after_each_statement(files):
            asyncio.run(restored(site, LostCluster(root).backups / "backup.tar"))
        files.mark("restored")

    def check(self, crash: Crash) -> None:
        """A restore is complete, or it can be run again and no JobManager leads until then, or it has not begun."""
        cluster, site = LostCluster(crash.directory), self._site(crash.directory)
        self._check_storage(cluster, site)
        if "restored" not in crash.marks and not self._is_complete(cluster, site):
            asyncio.run(restored(site, cluster.backups / "backup.tar"))
            self._check_storage(cluster, site)
        asyncio.run(self._check_whole(cluster, site))

    def _check_storage(self, cluster: LostCluster, site: EmbeddedSite) -> None:
        if not self._survives:
            return
        lost, storage = cluster.site.layout.storage, site.layout.storage
        before, now = _files(lost), _files(storage)
        gone = [name for name, data in before.items() if not is_owner_file(Path(name).name) and now.get(name) != data]
        assert not gone, f"the storage has lost {gone}"
        owned, owns = read_owner(lost), read_owner(storage)
        assert owned is not None
        assert owns is not None
        assert owns.belongs_to == owned.belongs_to or owned.belongs_to in owns.replaced, "the lost cluster may lead"

    def _is_complete(self, cluster: LostCluster, site: EmbeddedSite) -> bool:
        """True if only the answer was lost. Raises AssertionError if a JobManager would lead without all jobs."""
        place = site.layout.job_manager
        if read_unfinished(place) is not None:
            assert not asyncio.run(_leads(site)), "a JobManager leads although the restore has not ended"
            return False
        if (place / _DATABASE).exists():
            return True
        changed = [path.name for path in site.layout.root.rglob("*") if path.is_file()]
        began = [name for name in changed if name != f"{_DATABASE}.lock" and not name.startswith(f".{RESTORING}.")]
        assert not began, f"nothing tells that it has begun: {began}"
        before = read_owner(cluster.site.layout.storage) if self._survives else None
        now = read_owner(site.layout.storage) if site.layout.storage.exists() else None
        assert now == before, "nothing tells that the storage was taken over"
        return False

    async def _check_whole(self, cluster: LostCluster, site: EmbeddedSite) -> None:
        for name, path in key_files(cluster.site.layout).items():
            assert key_files(site.layout)[name].read_bytes() == path.read_bytes(), f"{name} is another one"
        assert read_drawn_id(site.layout.root) == read_drawn_id(cluster.site.layout.root)
        async with site.led() as store:
            (stored,) = await store.recover()
            assert stored.graph is not None, stored.problem
            assert stored.graph.artefacts == job(1, artefacts=stored.graph.artefacts).artefacts
            assert stored.over
            assert [result.job_id for result in await store.results()] == [job(2).job_id]
        blobs = open_blob_storage(site.layout.ha_blobs)
        try:
            copy = site.layout.root / "copy"
            await blobs.fetch(stored.job_id, permanent(CODE_SHA256), copy)
            assert copy.read_bytes() == CODE
        finally:
            await blobs.close()


async def _leads(site: EmbeddedSite) -> bool:
    store = EmbeddedJobStore(site.layout.job_manager / _DATABASE, site.layout.graphs, None)
    try:
        await store.open()
    except RetryLater:
        return False
    await store.close()
    return True


_WITH_STORAGE, _WITHOUT_STORAGE = RestoreLife(survives=True), RestoreLife(survives=False)

COMPONENTS = (
    Component("making backups", BACKUP, live_backups, check_backups, given=given_older, most_sizes=_SIZES),
    Component(
        "restore with the storage",
        BACKUP,
        _WITH_STORAGE.live,
        _WITH_STORAGE.check,
        given=_WITH_STORAGE.given,
        most_sizes=_SIZES,
    ),
    Component(
        "restore into new storage",
        BACKUP,
        _WITHOUT_STORAGE.live,
        _WITHOUT_STORAGE.check,
        given=_WITHOUT_STORAGE.given,
        most_sizes=_SIZES,
    ),
)
