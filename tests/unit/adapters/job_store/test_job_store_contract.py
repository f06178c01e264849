"""The embedded store and its fake hold the same contract."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.adapters.job_store.embedded import EmbeddedJobStore
from emberkeep.base.errors import RetryLater, UnknownOutcome
from emberkeep.base.ids import JobId
from emberkeep.jobs.ports import JobStore
from tests.support.contracts.damaged_jobs import DamagedJobsContract
from tests.support.contracts.job_store import JobStoreContract, job, result_of
from tests.support.fakes import MemoryDisk, MemoryJobStore


class Directory:
    """Files below one directory. A crash is a copy of them as they are at that moment: nothing is flushed or closed."""

    def __init__(self, root: Path) -> None:
        self._roots = (root / str(number) for number in itertools.count())
        self.root = next(self._roots)

    def store(self) -> JobStore:
        return EmbeddedJobStore(self.root / "jobs.sqlite", self.root / "graphs")

    def crash(self) -> None:
        old, self.root = self.root, next(self._roots)
        shutil.copytree(old, self.root)

    def depose(self) -> None:
        (self.root / "jobs.sqlite.lock").unlink()

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        graphs, elsewhere = self.root / "graphs", self.root / "elsewhere"
        graphs.rename(elsewhere)
        try:
            yield
        finally:
            elsewhere.rename(graphs)

    def damage(self, job_id: JobId) -> str:
        (path,) = self.root.glob(f"graphs/*/{job_id}.graph")
        path.write_bytes(path.read_bytes()[:-10])
        return str(path)

    async def damage_pointers(self, job_id: JobId) -> bytes:
        return self._tear("checkpoints", "pointers", job_id)

    async def damage_attempt(self, job_id: JobId) -> bytes:
        return self._tear("jobs", "attempt", job_id)

    def _tear(self, table: str, column: str, job_id: JobId) -> bytes:
        with contextlib.closing(sqlite3.connect(self.root / "jobs.sqlite", isolation_level=None)) as connection:
            tear = f"UPDATE {table} SET {column} = substr({column}, 1, length({column}) - 5) WHERE job_id = ?"
            assert connection.execute(tear, (job_id,)).rowcount == 1
            ((torn,),) = connection.execute(f"SELECT {column} FROM {table} WHERE job_id = ?", (job_id,))
            return bytes(torn)

    async def records(self, job_id: JobId) -> list[bytes]:
        with contextlib.closing(sqlite3.connect(self.root / "jobs.sqlite", isolation_level=None)) as connection:
            tables = ("SELECT handle, attempt FROM damaged", "SELECT pointers FROM checkpoints")
            rows = [row for table in tables for row in connection.execute(f"{table} WHERE job_id = ?", (job_id,))]
        return [bytes(value) for row in rows for value in row]

    async def damage_blocklist(self) -> None:
        with contextlib.closing(sqlite3.connect(self.root / "jobs.sqlite", isolation_level=None)) as connection:
            tear = "UPDATE blocklist SET list = substr(list, 1, length(list) - 5)"
            assert connection.execute(tear).rowcount == 1


class Memory:
    def __init__(self) -> None:
        self._disk = MemoryDisk()

    def store(self) -> JobStore:
        return MemoryJobStore(self._disk)

    def crash(self) -> None:
        self._disk.crash()

    def depose(self) -> None:
        self._disk.crash()

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        self._disk.away = True
        yield
        self._disk.away = False

    def damage(self, job_id: JobId) -> str:
        self._disk.damage(job_id)
        return str(job_id)

    async def damage_pointers(self, job_id: JobId) -> None:
        self._disk.damage_pointers(job_id)

    async def damage_blocklist(self) -> None:
        self._disk.damage_blocklist()


@pytest.mark.anyio
class TestEmbedded(JobStoreContract, DamagedJobsContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Directory:
        return Directory(tmp_path)

    @pytest.mark.req("HA-11")
    async def test_what_was_answered_is_found_after_a_crash(self, place: Directory) -> None:  # type: ignore[override]
        await super().test_what_was_answered_is_found_after_a_crash(place)


@pytest.mark.anyio
class TestMemory(JobStoreContract):
    @pytest.fixture
    def place(self) -> Memory:
        return Memory()


@pytest.mark.anyio
async def test_the_fake_fails_on_request_before_or_after_the_write() -> None:
    store = MemoryJobStore(MemoryDisk())
    await store.open()
    store.fail_next(RetryLater("busy"))
    store.fail_next(UnknownOutcome("lost"), applied=True)
    with pytest.raises(RetryLater):
        await store.create(job(1))
    assert await store.recover() == []
    with pytest.raises(UnknownOutcome):
        await store.create(job(1))
    assert len(await store.recover()) == 1
    store.fail_next(UnknownOutcome("lost"), applied=True)
    with pytest.raises(UnknownOutcome):
        await store.record_result(result_of(job(1)))
    assert await store.results() == [result_of(job(1))]
