"""A ZooKeeper that was put back from an older copy: what runs goes on, and the way out that the documentation names."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from emberkeep.adapters.zookeeper.layout import ZooKeeperLayout
from emberkeep.base.ids import JobId
from tests.integration.clusters import kill_process
from tests.integration.conditions import DEADLINE
from tests.integration.sites import Member, Site, holds
from tests.integration.zookeepers import Ensemble

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.long, pytest.mark.req("SAFE-6")]

DELAYS = {"high-availability.storage.unknown-delay": "1h", "high-availability.storage.ended-delay": "1h"}
TOLD = "ZooKeeper was restored from an older copy. Raise the epoch: see docs/storage.md"
EPOCH = ZooKeeperLayout("emberkeep", "default").epoch


@pytest.fixture
async def ensemble(tmp_path: Path) -> AsyncIterator[Ensemble]:
    ensemble = Ensemble(tmp_path / "zookeeper")
    await ensemble.start()
    yield ensemble
    ensemble.stop()


@pytest.fixture
async def site(tmp_path: Path, ensemble: Ensemble) -> AsyncIterator[Site]:
    site = Site(tmp_path / "site", ensemble)
    yield site
    await site.close()


async def lead(site: Site) -> Member:
    """A JobManager is started, and leads."""
    member = await site.add_job_manager(DELAYS)
    await holds(lambda: site.leads(member), "the JobManager leads")
    return member


async def running(site: Site, member: Member, job_id: JobId, attempt: int) -> int:
    """The pid of the driver of this attempt."""

    async def runs() -> int:
        job = await site.job(member, job_id)
        return 0 if job is None or job.emberkeep.attempt != attempt else await site.runs(member, job_id)

    pid = await holds(runs, f"attempt {attempt} of job {job_id} runs")
    assert isinstance(pid, int)
    return pid


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def raise_epoch(ensemble: Ensemble, newest: int) -> None:
    """As the documentation says: write the node with its own data until its version is ``newest``."""
    client = KazooClient(hosts=ensemble.hosts)
    client.start(timeout=DEADLINE)
    try:
        data, stat = client.get(EPOCH)
        while stat.version < newest:
            stat = client.set(EPOCH, data)
    finally:
        client.stop()
        client.close()


def version(ensemble: Ensemble) -> int:
    client = KazooClient(hosts=ensemble.hosts)
    client.start(timeout=DEADLINE)
    try:
        return int(client.get(EPOCH)[1].version)
    finally:
        client.stop()
        client.close()


async def test_nothing_is_lost_and_the_documented_way_out_works(tmp_path: Path, ensemble: Ensemble, site: Site) -> None:
    gate, copy = tmp_path / "gate", tmp_path / "copy"
    directory = Path(ensemble.servers[0].directory)
    member = await lead(site)
    await site.add_task_manager()
    moved = await site.submit(member, gate)
    first = await running(site, member, moved, 1)
    ensemble.kill()
    shutil.copytree(directory, copy)
    ensemble.launch()
    await ensemble.serving()

    await site.stop(member)
    await lead(site)
    await site.stop(site.members[-1])
    member = await lead(site)
    assert await running(site, member, moved, 1) == first
    kill_process(first)
    second = await running(site, member, moved, 2)
    later = await site.submit(member, gate)
    unknown = await running(site, member, later, 1)
    newest = version(ensemble)
    stored = site.data()

    await site.stop(member)
    ensemble.kill()
    shutil.rmtree(directory)
    shutil.copytree(copy, directory)
    ensemble.launch()
    await ensemble.serving()
    assert version(ensemble) < newest - 1
    member = await lead(site)
    await holds(lambda: site.logged("tm-1", TOLD), "the task manager says what has happened and what to do")
    assert is_alive(second), "an older leader ends nobody"
    assert is_alive(unknown), "not even a driver of whose job it has never heard"
    assert stored <= site.data(), "and deletes nothing"

    await site.stop(member)
    raise_epoch(ensemble, newest)
    member = await lead(site)
    assert await running(site, member, moved, 2) == second
    event = "the job store was put back from an older copy: it does not know this job's newest attempt"
    assert await site.logged("jm-5", f'"job": "{moved}", "attempt": 2, "stored": 1, "event": "{event}')
    assert stored <= site.data(), "nothing is deleted before its delay"
    gate.touch()

    async def has_finished() -> bool:
        job = await site.job(member, moved)
        return job is not None and (job.state.value, job.emberkeep.attempt) == ("FINISHED", 2)

    await holds(has_finished, "the job finishes in the attempt that ran")
