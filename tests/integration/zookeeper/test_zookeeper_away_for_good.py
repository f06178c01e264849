"""JobManagers that have lost ZooKeeper, and get it back never: what they say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.sites import Site, holds
from tests.integration.zookeepers import Ensemble

pytestmark = [pytest.mark.anyio, pytest.mark.integration]


@pytest.fixture
async def ensemble(tmp_path: Path) -> AsyncIterator[Ensemble]:
    ensemble = Ensemble(tmp_path / "zookeeper")
    await ensemble.start()
    yield ensemble
    ensemble.stop()


@pytest.fixture
async def site(tmp_path: Path, ensemble: Ensemble) -> AsyncIterator[Site]:
    site = Site(tmp_path, ensemble)
    yield site
    await site.close()


@pytest.mark.req("SAFE-10")
async def test_a_leader_says_that_it_decides_nothing_and_a_standby_that_it_cannot_follow(
    site: Site, ensemble: Ensemble
) -> None:
    leader = await site.add_job_manager()
    await holds(lambda: site.leads(leader), "it leads")
    assert "nothing has been decided" not in (await site.readiness(leader))[1]
    ensemble.kill()

    async def it_is_told() -> bool:
        return "nothing has been decided for" in (await site.readiness(leader))[1]

    await holds(it_is_told, "readiness tells of it")
    status, text = await site.readiness(leader)
    assert status == 200, "it still answers, and hears the jobs that run"
    assert "the session with the job store is interrupted" in text
    assert "until the store (ZooKeeper, or the disk of jobs.sqlite) can be reached and written again" in text
    async with site.client(leader) as client:
        assert "nothing has been decided for" in (await client.overview()).emberkeep.problem

    standby = await site.add_job_manager()
    status, text = await site.readiness(standby)
    assert status == 503
    assert f"cannot reach ZooKeeper at {standby.to_zookeeper.address}" in text
    assert "high-availability.zookeeper.quorum" in text
