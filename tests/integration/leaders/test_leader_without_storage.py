"""Two JobManagers that reach the shared storage by mounts of their own, which go away."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from tests.integration.sites import Member, Site, holds, submitted
from tests.integration.zookeepers import Ensemble

pytestmark = [pytest.mark.anyio, pytest.mark.integration]


class Mounts:
    """Ways to one storage, one for each JobManager. An empty directory is where it is not mounted."""

    def __init__(self, directory: Path) -> None:
        self._storage = directory / "storage"
        self._storage.mkdir()
        self._ways = [directory / f"mount-{number}" for number in range(2)]
        for way in self._ways:
            way.mkdir()
        for number in range(2):
            self.mount(number)

    def settings(self, number: int) -> dict[str, str]:
        return {"high-availability.storageDir": str(self._ways[number])}

    def mount(self, number: int) -> None:
        self._ways[number].rmdir()  # fails if anything was put there
        self._ways[number].symlink_to(self._storage)

    def unmount(self, number: int) -> None:
        self._ways[number].unlink()
        self._ways[number].mkdir()


@pytest.fixture
def mounts(tmp_path: Path) -> Mounts:
    return Mounts(tmp_path)


@pytest.fixture
async def site(tmp_path: Path, mounts: Mounts) -> AsyncIterator[Site]:
    ensemble = Ensemble(tmp_path / "zookeeper")
    await ensemble.start()
    site = Site(tmp_path, ensemble)
    try:
        first = await site.add_job_manager(mounts.settings(0))
        await holds(lambda: site.leads(first), "the first leads")
        await site.add_job_manager(mounts.settings(1))
        yield site
    finally:
        await site.close()
        ensemble.stop()


@pytest.mark.req("SAFE-2")
async def test_the_lead_goes_to_where_the_storage_is_and_stays_where_nobody_has_it(
    site: Site, mounts: Mounts, tmp_path: Path
) -> None:
    first, second = site.members

    def waits(member: Member, *, for_graph: bool) -> Callable[[], object]:
        async def look() -> bool:
            job = await site.job(member, job_id)
            return job is not None and job.emberkeep.waiting.startswith("its job graph: ") is for_graph

        return look

    async def is_ready() -> bool:
        return (await site.readiness(first))[0] == 200

    job_id = JobId(str(await holds(lambda: submitted(site, first, tmp_path / "gate"), "a job is accepted")))
    mounts.unmount(0)
    await holds(lambda: site.leads(second), "the second leads, which has the storage")
    await holds(waits(second, for_graph=False), "it has read the job")  # type: ignore[arg-type]
    status, text = await site.readiness(first)
    assert (status, "the shared storage cannot be read here now" in text) == (503, True)

    mounts.unmount(1)

    async def says() -> bool:
        return "the shared storage cannot be read here now" in (await site.readiness(second))[1]

    await holds(says, "the second says that it has it no more")
    assert (await site.readiness(second))[0] == 200
    assert await site.leads(second), "nobody has it: who leads goes on"

    mounts.mount(0)
    await holds(lambda: site.leads(first), "the first leads again")
    await holds(is_ready, "it is ready")
    await holds(waits(first, for_graph=False), "it has read the job")  # type: ignore[arg-type]
