"""A JobManager that finds no jobs, as its root in ZooKeeper is a different one from before, deletes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from emberkeep.protocol.rest_storage import StorageInfo
from tests.integration.sites import Member, Site, holds
from tests.integration.zookeepers import Ensemble

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

UNKNOWN = "9" * 32
DELAYS = {
    "high-availability.storage.unknown-delay": "1s",
    "high-availability.storage.ended-delay": "1s",
}


@pytest.fixture
async def ensemble(tmp_path: Path) -> AsyncIterator[Ensemble]:
    ensemble = Ensemble(tmp_path / "zookeeper")
    await ensemble.start()
    yield ensemble
    ensemble.stop()


async def start(site: Site, root: str) -> Member:
    member = await site.add_job_manager({"high-availability.zookeeper.path.root": root, **DELAYS})
    await holds(lambda: site.leads(member), f"a JobManager leads with the root {root}")
    return member


async def status(site: Site, member: Member) -> StorageInfo:
    async with site.client(member) as client:
        return await client.storage.status()


@pytest.mark.req("SAFE-6", "SAFE-7")
async def test_another_root_lets_nothing_be_deleted_until_a_person_says_so(tmp_path: Path, ensemble: Ensemble) -> None:
    checkpoints = tmp_path / "state" / "storage" / "checkpoints" / "default" / UNKNOWN / "query"
    site = Site(tmp_path, ensemble)
    try:
        assert (await status(site, await start(site, "/one"))).owned
    finally:
        await site.close()
    checkpoints.mkdir(parents=True)
    site = Site(tmp_path, ensemble)
    try:
        member = await start(site, "/two")

        async def has_looked() -> bool:
            async with site.client(member) as client:
                own = (await client.overview()).emberkeep
            return "was used with another job store" in own.storage_problem and own.storage_unneeded == 1

        await holds(has_looked, "the clean-up has declined")
        found = await status(site, member)
        assert (found.owned, [each.jobid for each in found.data]) == (False, [UNKNOWN])
        assert checkpoints.is_dir()
        async with site.client(member) as client:
            assert (await client.storage.adopt()).owned

        async def is_gone() -> bool:
            return not checkpoints.exists()

        await holds(is_gone, "what was adopted, and no job needs, goes after its period")
    finally:
        await site.close()
