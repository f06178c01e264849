"""A leader that is cut off while a job runs: from ZooKeeper alone, or from everybody who looks for it there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from emberkeep.base.errors import EmberkeepError
from emberkeep.base.ids import JobId
from tests.integration.sites import HEARTBEAT_SECONDS, LEASE_SECONDS, Site, holds, submitted
from tests.integration.zookeepers import Ensemble

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.long]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    ensemble = Ensemble(tmp_path / "zookeeper")
    await ensemble.start()
    site = Site(tmp_path, ensemble)
    try:
        first = await site.add_job_manager()
        await holds(lambda: site.leads(first), "the first leads")
        await site.add_job_manager()
        await site.add_task_manager()
        yield site
    finally:
        await site.close()
        ensemble.stop()


@pytest.mark.req("HA-6")
@pytest.mark.req("HA-9")
async def test_a_leader_that_is_cut_off_from_zookeeper_alone(site: Site, tmp_path: Path) -> None:
    first, second = site.members
    gates = [tmp_path / f"gate-{number}" for number in range(2)]
    job_id = JobId(str(await holds(lambda: submitted(site, first, gates[0]), "a job is accepted")))
    pid = await holds(lambda: site.runs(first, job_id), "the job runs")
    assert isinstance(pid, int)

    first.to_zookeeper.cut()
    await holds(lambda: site.leads(second), "the second leads")
    # The first believes that it leads as long as nobody tells it, but it can confirm nothing.
    with pytest.raises(EmberkeepError):
        await site.submit(first, gates[1])
    await holds(lambda: site.runs(second, job_id, pid), "the same driver runs for the second")
    other_id = JobId(str(await holds(lambda: submitted(site, second, gates[1]), "the second accepts jobs")))
    first.to_zookeeper.heal()
    # Whichever of the two leads by then: a machine under load may lose its session again.
    await holds(lambda: site.job(first, other_id), "the first knows what was accepted while it was cut off")

    for each, gate in zip((job_id, other_id), gates, strict=True):
        gate.touch()
        await holds(lambda each=each: site.has_finished(second, each), "it ends in its first attempt")  # type: ignore[misc]


@pytest.mark.req("HA-5")
async def test_a_leader_that_nobody_reaches_lets_another_lead_and_gives_up_no_driver(
    site: Site, tmp_path: Path
) -> None:
    first, second = site.members
    gates = [tmp_path / f"gate-{number}" for number in range(2)]
    job_id = JobId(str(await holds(lambda: submitted(site, first, gates[0]), "a job is accepted")))
    pid = await holds(lambda: site.runs(first, job_id), "the job runs")
    assert isinstance(pid, int)

    # It still reaches ZooKeeper and the task manager, and its port refuses nothing.
    first.to_it.cut()
    await holds(lambda: site.leads(second), "the second leads")
    await holds(lambda: site.runs(second, job_id, pid), "the same driver runs for the second")
    other_id = JobId(str(await holds(lambda: submitted(site, second, gates[1]), "the second accepts jobs")))
    await holds(lambda: site.runs(second, other_id), "and runs them")

    # Now nobody can be reached, for longer than a driver that is silent among others would be waited for.
    second.to_it.cut()
    cut = asyncio.get_running_loop().time()
    await holds(lambda: passed(cut + 2 * (HEARTBEAT_SECONDS + LEASE_SECONDS)), "longer than any lease")
    for member in site.members:
        member.to_it.heal()
    await holds(lambda: site.runs(second, job_id, pid), "the same driver runs still")

    for each, gate in zip((job_id, other_id), gates, strict=True):
        gate.touch()
        await holds(lambda each=each: site.has_finished(second, each), "it ends in its first attempt")  # type: ignore[misc]


async def passed(moment: float) -> bool:
    return asyncio.get_running_loop().time() > moment
