"""Graphs that no handle leads to: a job store that was put back from an older copy has some, and deletes none."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from emberkeep.adapters.job_store.embedded import EmbeddedJobStore
from emberkeep.adapters.job_store.graph_files import GraphFiles
from emberkeep.base.errors import Conflict
from emberkeep.jobs.model import JobStatus
from tests.support.contracts.job_store import job, result_of

JOB, NEWER = job(1).job_id, job(2).job_id


class Site:
    """An embedded store: its file, and its graphs elsewhere."""

    def __init__(self, root: Path) -> None:
        self.file, self.copies, self.graphs = root / "jm" / "jobs.sqlite", root / "copies", root / "graphs"
        self.copies.mkdir()

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[EmbeddedJobStore]:
        store = EmbeddedJobStore(self.file, self.graphs)
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    def copy(self, name: str) -> None:
        shutil.copy(self.file, self.copies / name)

    def put_back(self, name: str) -> None:
        shutil.copy(self.copies / name, self.file)

    def names(self) -> set[str]:
        return {path.name for path in self.graphs.glob("*/*")}


@pytest.fixture
async def site(tmp_path: Path) -> Site:
    """Its store was copied after each of two submissions, and is the older copy now."""
    site = Site(tmp_path)
    for number in (1, 2):
        async with site.opened() as store:
            await store.create(job(number))
        site.copy(f"after {number}")
    site.put_back("after 1")
    return site


@pytest.mark.anyio
@pytest.mark.req("SAFE-7")
async def test_a_store_from_an_older_copy_deletes_no_graph_at_its_opening(site: Site) -> None:
    async with site.opened() as store:
        assert [stored.graph for stored in await store.recover()] == [job(1)]
    assert site.names() == {f"{JOB}.graph", f"{NEWER}.graph"}
    site.put_back("after 2")
    async with site.opened() as store:
        assert [stored.graph for stored in await store.recover()] == [job(1), job(2)]


@pytest.mark.anyio
@pytest.mark.req("SAFE-7")
async def test_only_graphs_without_a_handle_are_offered_and_removed(site: Site) -> None:
    async with site.opened() as store:
        assert set(await store.leftovers.graphs()) == {NEWER}
        for job_id in (JOB, NEWER):
            await store.leftovers.remove_graph(job_id)
        assert site.names() == {f"{JOB}.graph"}
        assert set(await store.leftovers.graphs()) == set()


@pytest.mark.anyio
@pytest.mark.req("SAFE-3")
async def test_what_is_damaged_is_not_among_them(site: Site) -> None:
    async with site.opened() as store:
        for path in site.graphs.glob("*/*"):
            path.write_bytes(b"torn")
        await store.record_result(result_of(job(1), JobStatus.FAILED))
        assert set(await store.leftovers.graphs()) == {NEWER}
        for job_id in (JOB, NEWER):
            await store.leftovers.remove_graph(job_id)
        assert site.names() == {f"{JOB}.graph", f"{NEWER}.graph"}
        assert set(await store.leftovers.graphs()) == set(), "it stays for somebody to look at"


@pytest.mark.anyio
@pytest.mark.req("SAFE-10")
async def test_a_deposed_leader_removes_none(site: Site) -> None:
    async with site.opened() as old:
        site.file.with_name("jobs.sqlite.lock").unlink()
        async with site.opened():
            with pytest.raises(Conflict):
                await old.leftovers.remove_graph(NEWER)
    assert f"{NEWER}.graph" in site.names()


@pytest.mark.req("SAFE-7")
def test_of_several_leaders_only_those_of_earlier_ones_count(tmp_path: Path) -> None:
    for epoch in (3, 4, 5):
        GraphFiles(tmp_path, epoch).write(job(epoch))
    for epoch in (2, 3):
        GraphFiles(tmp_path, epoch).write(job(1))
    (tmp_path / f"{job(6).job_id}.graph").touch()
    files = GraphFiles(tmp_path, 4)
    assert files.without_handle({JOB}) == {job(3).job_id: [f"{job(3).job_id}.3.graph"]}
    assert files.without_handle(set())[JOB] == [f"{JOB}.2.graph", f"{JOB}.3.graph"]
