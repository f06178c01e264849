"""What is particular to the embedded store: its files, full disks and damage."""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from emberkeep.adapters.job_store.embedded import EmbeddedJobStore
from emberkeep.adapters.job_store.graph_files import GRAPH_KIND, decode_handle, encode_handle
from emberkeep.base.errors import Conflict, Fatal, RetryLater
from emberkeep.base.files.durable import encode_record
from emberkeep.blocklist.model import Blocklist
from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.ports import Trouble
from tests.support.contracts.job_store import job, result_of

pytestmark = pytest.mark.anyio

MIB = 1024**2


@contextlib.asynccontextmanager
async def opened(root: Path) -> AsyncIterator[EmbeddedJobStore]:
    store = EmbeddedJobStore(root / "jm" / "jobs.sqlite", root / "graphs")
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def graph_file(root: Path, number: int) -> Path:
    (path,) = root.glob(f"graphs/*/{job(number).job_id}.graph")
    return path


def graph_files(root: Path) -> list[Path]:
    return sorted(root.glob("graphs/*/*"))


def edit(root: Path, statement: str, *values: object) -> None:
    with contextlib.closing(sqlite3.connect(root / "jm" / "jobs.sqlite")) as connection, connection:
        connection.execute(statement, values)


def ask(root: Path, statement: str) -> list[tuple[bytes, ...]]:
    with contextlib.closing(sqlite3.connect(root / "jm" / "jobs.sqlite")) as connection:
        return connection.execute(statement).fetchall()


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Writes beyond ``size`` bytes of a file fail, as they do on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class TestFiles:
    @pytest.mark.req("HA-2")
    async def test_a_large_graph_lies_in_a_file_and_the_handle_stays_small(self, tmp_path: Path) -> None:
        graph = job(1, options={"x": "y" * (8 * MIB)})
        async with opened(tmp_path) as store:
            await store.create(graph)
            assert [stored.graph for stored in await store.recover()] == [graph]
            ((handle,),) = ask(tmp_path, "SELECT handle FROM jobs")
        data = graph_file(tmp_path, 1).read_bytes()
        decoded = decode_handle(handle, where="test")
        assert len(handle) < 500
        assert (decoded.size, decoded.sha256) == (len(data), hashlib.sha256(data).hexdigest())
        assert (tmp_path / "jm" / "jobs.sqlite").stat().st_size < MIB

    async def test_only_their_owner_reads_them(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            await store.create(job(1))
            files = [path for path in tmp_path.rglob("*") if path.is_file()]
            assert len(files) >= 4
            assert {path.stat().st_mode & 0o077 for path in files} == {0}

    async def test_a_graph_goes_with_its_job(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            await store.create(job(1))
            await store.create(job(2))
            await store.record_result(result_of(job(1)))
            assert graph_files(tmp_path) == [graph_file(tmp_path, 2)]

    async def test_only_unfinished_files_go_at_the_next_start(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            await store.create(job(1))
            await store.create(job(2))
        edit(tmp_path, "DELETE FROM jobs WHERE job_id = ?", job(2).job_id)
        own = graph_file(tmp_path, 1).parent
        (own / ".unfinished.123.tmp").write_bytes(b"torn")
        (own / "damaged.graph").write_bytes(b"?")
        elsewhere = tmp_path / "graphs" / "of another store" / graph_file(tmp_path, 2).name
        elsewhere.parent.mkdir()
        elsewhere.write_bytes(graph_file(tmp_path, 2).read_bytes())
        async with opened(tmp_path) as store:
            assert [stored.graph for stored in await store.recover()] == [job(1)]
            graphs = {own / f"{job(number).job_id}.graph" for number in (1, 2)}
            assert set(graph_files(tmp_path)) == {*graphs, own / "damaged.graph", elsewhere}

    async def test_the_lock_names_its_holder(self, tmp_path: Path) -> None:
        async with opened(tmp_path):
            with pytest.raises(Conflict, match=rf"pid {os.getpid()}\).*emberkeep\.state-dir"):
                async with opened(tmp_path):
                    pass


class TestFullDisk:
    async def test_a_graph_that_does_not_fit_leaves_nothing(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            await store.create(job(1))
            with file_size_limit(256 * 1024), pytest.raises(Fatal, match="graph"):
                await store.create(job(2, options={"x": "y" * MIB}))
            assert graph_files(tmp_path) == [graph_file(tmp_path, 1)]
            assert len(await store.recover()) == 1
            await store.create(job(2))
            assert len(await store.recover()) == 2

    async def test_a_change_that_does_not_fit_did_not_happen(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            await store.create(job(1))
            large = msgspec.structs.replace(result_of(job(1)), root_cause="x" * MIB)
            with file_size_limit(256 * 1024), pytest.raises(Fatal, match=r"jobs\.sqlite"):
                await store.record_result(large)
            assert await store.results() == []
            assert [stored.graph for stored in await store.recover()] == [job(1)]
            await store.record_result(large)
            assert await store.results() == [large]

    async def test_a_handle_that_does_not_fit_takes_its_graph_along(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            await store.create(job(1))
            wal = (tmp_path / "jm" / "jobs.sqlite-wal").stat().st_size
            with file_size_limit(wal), pytest.raises(Fatal, match=r"jobs\.sqlite"):
                await store.create(job(2))
            assert graph_files(tmp_path) == [graph_file(tmp_path, 1)]
            await store.create(job(2))
            assert [stored.graph for stored in await store.recover()] == [job(1), job(2)]

    async def test_no_room_to_open_is_fatal_and_opening_works_later(self, tmp_path: Path) -> None:
        with file_size_limit(0), pytest.raises(Fatal, match=r"jobs\.sqlite"):
            async with opened(tmp_path):
                pass
        async with opened(tmp_path) as store:
            await store.create(job(1))


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b" ")


def other_graph(path: Path) -> None:
    path.write_bytes(encode_record(GRAPH_KIND, 1, msgspec.json.encode(job(77))))


def newer(path: Path) -> None:
    path.write_bytes(encode_record(GRAPH_KIND, 2, msgspec.json.encode(job(2))))


class TestDamage:
    @pytest.mark.req("HA-10")
    @pytest.mark.parametrize("harm", [torn, flipped, empty, longer, other_graph, newer])
    async def test_a_damaged_graph_is_its_jobs_problem_and_is_kept(
        self, tmp_path: Path, harm: Callable[[Path], None]
    ) -> None:
        async with opened(tmp_path) as store:
            for number in (1, 2, 3):
                await store.create(job(number))
        path = graph_file(tmp_path, 2)
        harm(path)
        before = path.read_bytes()
        async with opened(tmp_path) as store:
            first, second, third = await store.recover()
            assert (first.graph, third.graph) == (job(1), job(3))
            assert second.graph is None
            assert str(path) in second.problem
            assert second.trouble is Trouble.DAMAGED
            await store.record_result(result_of(job(2), JobStatus.FAILED))
        async with opened(tmp_path) as store:
            assert [stored.graph for stored in await store.recover()] == [job(1), job(3)]
            assert await store.results() == [result_of(job(2), JobStatus.FAILED)]
        assert path.read_bytes() == before

    @pytest.mark.req("HA-10")
    async def test_a_handle_that_leads_nowhere_says_so(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            await store.create(job(1))
            ((handle,),) = ask(tmp_path, "SELECT handle FROM jobs")
        elsewhere = msgspec.structs.replace(decode_handle(handle, where="test"), location="../../etc/passwd")
        for damaged, reason in [
            (encode_record("job-handle", 1, b'{"x":1}'), "location"),
            (encode_handle(elsewhere), "not a graph of this store"),
            (handle[:-4], "damaged"),
            (b"", "not an Emberkeep record"),
        ]:
            edit(tmp_path, "UPDATE jobs SET handle = ?", damaged)
            async with opened(tmp_path) as store:
                (stored,) = await store.recover()
            assert stored.graph is None
            assert reason in stored.problem
        assert graph_file(tmp_path, 1).exists()

    @pytest.mark.req("HA-10")
    async def test_what_is_left_of_a_failed_job_with_a_damaged_handle_is_kept(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            await store.create(job(1))
        edit(tmp_path, "UPDATE jobs SET handle = ?", b"rubbish")
        async with opened(tmp_path) as store:
            await store.record_result(result_of(job(1), JobStatus.FAILED))
        async with opened(tmp_path) as store:
            assert await store.recover() == []
        assert ask(tmp_path, "SELECT handle FROM damaged") == [(b"rubbish",)]
        assert graph_file(tmp_path, 1).exists()

    @pytest.mark.req("SAFE-3")
    async def test_its_graph_goes_before_its_record_and_the_blocklist_stays(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            for number in (1, 2):
                await store.create(job(number))
            await store.record_blocklist(Blocklist(revision=1))
        edit(tmp_path, "UPDATE jobs SET handle = ? WHERE job_id = ?", b"rubbish", job(1).job_id)
        edit(tmp_path, "UPDATE blocklist SET list = ?", b"rubbish")
        torn(graph_file(tmp_path, 1))
        async with opened(tmp_path) as store:
            await store.record_blocklist(Blocklist(revision=2))
            await store.record_result(result_of(job(1), JobStatus.FAILED))
            (kept,) = await store.damaged()
            assert kept.places[1:] == (str(graph_file(tmp_path, 1)),)
            await store.remove_damaged(job(1).job_id)
            assert await store.damaged() == []
        assert graph_files(tmp_path) == [graph_file(tmp_path, 2)]
        assert ask(tmp_path, "SELECT CAST(job_id AS BLOB) FROM damaged") == [(b"blocklist",)]

    @pytest.mark.req("SAFE-15")
    async def test_a_blocklist_that_cannot_be_read_is_kept_when_another_takes_its_place(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            await store.record_blocklist(Blocklist(revision=1))
        edit(tmp_path, "UPDATE blocklist SET list = ?", b"rubbish")
        async with opened(tmp_path) as store:
            for revision in (2, 3):
                await store.record_blocklist(Blocklist(revision=revision))
                assert await store.blocklist() == Blocklist(revision=revision)
        assert ask(tmp_path, "SELECT handle FROM damaged WHERE job_id = 'blocklist'") == [(b"rubbish",)]

    @pytest.mark.req("HA-7")
    async def test_a_job_whose_attempt_cannot_be_read_is_not_started(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            await store.create(job(1))
        edit(tmp_path, "UPDATE jobs SET attempt = ?", encode_record("job-attempt", 2, b"12")[:-1])
        async with opened(tmp_path) as store:
            (stored,) = await store.recover()
            assert (stored.graph, stored.attempt) == (None, 0)
            assert "attempt of job" in stored.problem
            with pytest.raises(Fatal, match="damaged"):
                await store.record_attempt(job(1).job_id, 99)

    async def test_a_damaged_result_does_not_hide_the_others(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            for number in (1, 2):
                await store.create(job(number))
                await store.record_result(result_of(job(number)))
        edit(tmp_path, "UPDATE results SET result = ? WHERE job_id = ?", b"rubbish", job(1).job_id)
        async with opened(tmp_path) as store:
            assert await store.results() == [result_of(job(2))]
            with pytest.raises(Fatal, match="result of job"):
                await store.record_result(result_of(job(1)))

    @pytest.mark.parametrize("content", [b"not a database at all" * 300, b"SQLite format 3\0" + b"\xff" * 5000])
    async def test_a_file_that_is_no_database_is_named_and_kept(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "jm" / "jobs.sqlite"
        path.parent.mkdir()
        path.write_bytes(content)
        with pytest.raises(Fatal, match=str(path)):
            async with opened(tmp_path):
                pass
        assert path.read_bytes() == content

    async def test_another_program_that_writes_means_retry(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("emberkeep.adapters.job_store.fenced_file._BUSY_SECONDS", 0.01)
        async with opened(tmp_path) as store:
            with contextlib.closing(sqlite3.connect(tmp_path / "jm" / "jobs.sqlite", isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                with pytest.raises(RetryLater, match="in use"):
                    await store.create(job(1))
            await store.create(job(1))


@pytest.mark.req("SAFE-6")
async def test_a_store_that_was_emptied_is_another_one(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        lineage = store.lineage
    for path in (tmp_path / "jm").iterdir():
        path.unlink()
    async with opened(tmp_path) as store:
        assert store.lineage != lineage
    with pytest.raises(Conflict):
        _ = store.lineage
