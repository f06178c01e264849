"""A job store that was put back from an older copy: whoever has heard of later leaders follows its leader."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from emberkeep.adapters.job_store.embedded import EmbeddedJobStore
from emberkeep.base.errors import Conflict
from emberkeep.slots.table.fences import Fences
from tests.support.contracts.job_store import job

pytestmark = [pytest.mark.req("SAFE-6"), pytest.mark.anyio]


class Hand:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return 0.0


class Site:
    def __init__(self, root: Path) -> None:
        self.root = root / "jm"
        self.copy = root / "copy"
        self.clock = Hand()

    async def lead(self) -> tuple[int, str]:
        """Epoch and lineage of one life of a JobManager."""
        store = EmbeddedJobStore(self.root / "jobs.sqlite", self.root / "graphs", clock=self.clock)
        try:
            return await store.open(), store.lineage
        finally:
            await store.close()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_its_leader_is_followed_by_all_who_have_heard_of_later_ones(site: Site) -> None:
    fences = Fences()
    fences.admit_epoch(*await site.lead())
    shutil.copytree(site.root, site.copy)
    for _ in range(5):
        fences.admit_epoch(*await site.lead())
    shutil.rmtree(site.root)
    shutil.copytree(site.copy, site.root)
    site.clock.ms += 10_000
    epoch, lineage = await site.lead()
    assert lineage == fences.lineage
    fences.admit_epoch(epoch, lineage)


@pytest.mark.req("HA-7")
async def test_the_epoch_grows_whatever_the_clock_says(site: Site) -> None:
    epochs = [(await site.lead())[0]]
    for moved in (0, -5_000, 60_000, -1_700_000_000_000):
        site.clock.ms += moved
        epochs.append((await site.lead())[0])
    assert epochs == sorted(set(epochs))


async def test_a_clock_that_went_back_lets_no_deposed_leader_write(site: Site) -> None:
    """The time does not decide who leads."""
    first = EmbeddedJobStore(site.root / "jobs.sqlite", site.root / "graphs", clock=site.clock)
    await first.open()
    (site.root / "jobs.sqlite.lock").unlink()
    site.clock.ms -= 1_000_000
    await site.lead()
    with pytest.raises(Conflict, match="is over"):
        await first.create(job(1))
    await first.close()


def test_a_task_manager_says_what_an_older_epoch_may_mean() -> None:
    fences = Fences()
    fences.admit_epoch(7, "a")
    with pytest.raises(Conflict, match="epoch 3 is over") as refused:
        fences.admit_epoch(3, "a")
    assert refused.value.hint is not None
    assert "older copy" in refused.value.hint
