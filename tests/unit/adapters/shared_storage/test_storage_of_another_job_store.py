"""A job store takes data without a record for its own once at most: at its upgrade from a release that kept none."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from emberkeep.adapters.job_store.embedded import EmbeddedJobStore
from emberkeep.adapters.shared_storage.cluster import ClusterStorage
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.directories import STORAGE_DIRECTORY
from emberkeep.base.configuration.options.high_availability import HA_TYPE
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Unavailable
from emberkeep.base.files.ownership import OWNER_FILE, OwnedByAnother, Unclaimed
from emberkeep.base.ids import JobId
from emberkeep.jobs.leftovers import Kind

pytestmark = [pytest.mark.req("SAFE-6"), pytest.mark.anyio]

JOB = JobId("1" * 32)


class Site:
    """State directories, each of one embedded cluster, and one storage."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.storage = root / "storage"

    def layout(self, state: str) -> StateLayout:
        texts = {STORAGE_DIRECTORY.key: str(self.storage), HA_TYPE.key: "embedded"}
        return StateLayout(self.root / state, Configuration().with_texts(texts, "test"))

    @contextlib.asynccontextmanager
    async def started(self, state: str) -> AsyncIterator[ClusterStorage]:
        """The storage, while a JobManager with that job store leads."""
        layout = self.layout(state)
        storage = ClusterStorage(layout, lambda: 1000)
        store = EmbeddedJobStore(layout.job_manager / "jobs.sqlite", layout.graphs, storage)
        try:
            await store.open()
            yield storage
        finally:
            await store.close()

    async def refused(self, state: str, error: type[Exception]) -> None:
        with pytest.raises(error):
            async with self.started(state):
                pass

    async def declines(self, state: str) -> None:
        """Start with that job store: nothing may be deleted."""
        async with self.started(state) as storage:
            with pytest.raises(Unclaimed):
                storage.data.remove((Kind.CHECKPOINTS, JOB))
            assert (Kind.CHECKPOINTS, JOB) in storage.data.find()

    def put(self) -> None:
        (self.layout("any").checkpoints / JOB / "query").mkdir(parents=True)

    async def release_before(self, state: str) -> None:
        """Make a job store as release 0.1.0 left it: led, and without a record of its storage."""
        layout = self.layout(state)
        path = layout.job_manager / "jobs.sqlite"
        store = EmbeddedJobStore(path, layout.graphs)
        await store.open()
        await store.close()
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DROP TABLE storage")
            connection.execute("UPDATE store SET epoch = 3")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_a_new_job_store_adopts_data_without_a_record_at_no_start(site: Site) -> None:
    site.put()
    for _ in range(3):
        await site.declines("state")


async def test_a_cluster_that_was_refused_adopts_nothing_when_the_record_is_removed(site: Site) -> None:
    async with site.started("first"):
        site.put()
    await site.refused("second", OwnedByAnother)
    (site.storage / OWNER_FILE).unlink()
    for _ in range(2):
        await site.declines("second")


@pytest.mark.req("SAFE-14")
async def test_an_upgraded_job_store_adopts_its_data_also_when_its_storage_was_away_at_first(site: Site) -> None:
    site.put()
    await site.release_before("state")
    site.storage.rename(site.root / "unmounted")
    site.storage.touch()
    await site.refused("state", Unavailable)
    site.storage.unlink()
    (site.root / "unmounted").rename(site.storage)
    for _ in range(2):
        async with site.started("state") as storage:
            assert storage.problem() is None


async def test_an_upgraded_job_store_adopts_nothing_of_a_storage_that_was_another_clusters(site: Site) -> None:
    async with site.started("first"):
        site.put()
    await site.release_before("second")
    await site.refused("second", OwnedByAnother)
    (site.storage / OWNER_FILE).unlink()
    await site.declines("second")


async def test_a_new_job_store_that_was_refused_claims_an_empty_storage(site: Site) -> None:
    async with site.started("first"):
        site.put()
    await site.refused("second", OwnedByAnother)
    site.storage.rename(site.root / "of the first")
    async with site.started("second") as storage:
        assert storage.problem() is None
