"""The embedded job store after an upgrade, and after the step back."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from emberkeep.adapters.job_store.embedded import EmbeddedJobStore
from emberkeep.adapters.job_store.graph_files import decode_handle, encode_handle
from emberkeep.adapters.job_store.schema import SCHEMA_VERSION
from emberkeep.base.errors import Fatal, NewerFormat
from emberkeep.base.files.durable import decode_record, encode_record
from emberkeep.blocklist.model import Blocklist
from emberkeep.jobs.checkpoints import QueryCheckpoint
from tests.support.contracts.job_store import job, result_of

pytestmark = [pytest.mark.anyio, pytest.mark.req("SAFE-14")]

# What a release with schema 1 wrote beside the graphs and handles, which are the same since.
SCHEMA_1 = (
    "DROP TABLE blocklist",
    "DROP TABLE checkpoints",
    "PRAGMA user_version = 1",
)


@contextlib.asynccontextmanager
async def opened(root: Path) -> AsyncIterator[EmbeddedJobStore]:
    store = EmbeddedJobStore(root / "jm" / "jobs.sqlite", root / "graphs")
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def edit(root: Path, statement: str, *values: object) -> None:
    with contextlib.closing(sqlite3.connect(root / "jm" / "jobs.sqlite")) as connection, connection:
        connection.execute(statement, values)


def ask(root: Path, statement: str, name: str = "jobs.sqlite") -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(root / "jm" / name)) as connection:
        return connection.execute(statement).fetchall()


async def filled(root: Path) -> None:
    async with opened(root) as store:
        await store.create(job(1))
        await store.create(job(2))
        await store.record_result(result_of(job(2)))


async def filled_by_schema_1(root: Path) -> None:
    await filled(root)
    edit(root, "UPDATE jobs SET attempt = ?", encode_record("job-attempt", 1, b"7 canceled"))
    for statement in SCHEMA_1:
        edit(root, statement)


class TestAnOlderSchema:
    async def test_jobs_go_on_and_results_are_kept(self, tmp_path: Path) -> None:
        await filled_by_schema_1(tmp_path)
        async with opened(tmp_path) as store:
            (stored,) = await store.recover()
            assert (stored.graph, stored.attempt, stored.canceled, stored.problem) == (job(1), 7, True, "")
            assert await store.results() == [result_of(job(2))]
            await store.record_attempt(job(1).job_id, 8)
            pointers = await store.record_checkpoints(job(1).job_id, 8, ())
            await store.record_blocklist(Blocklist(revision=3))
        async with opened(tmp_path) as store:
            (stored,) = await store.recover()
            assert (stored.attempt, stored.canceled, stored.pointers) == (8, True, pointers)
            assert await store.blocklist() == Blocklist(revision=3)
        assert ask(tmp_path, "PRAGMA user_version") == [(SCHEMA_VERSION,)]

    async def test_a_copy_of_the_file_as_it_was_is_kept(self, tmp_path: Path) -> None:
        await filled_by_schema_1(tmp_path)
        before = ask(tmp_path, "SELECT * FROM jobs"), ask(tmp_path, "SELECT * FROM results")
        async with opened(tmp_path):
            pass
        copy = "jobs.sqlite.version-1"
        assert ask(tmp_path, "PRAGMA user_version", copy) == [(1,)]
        assert (ask(tmp_path, "SELECT * FROM jobs", copy), ask(tmp_path, "SELECT * FROM results", copy)) == before
        assert (tmp_path / "jm" / copy).stat().st_mode & 0o777 == 0o600

    async def test_without_room_for_the_copy_nothing_is_changed(self, tmp_path: Path) -> None:
        await filled_by_schema_1(tmp_path)
        (tmp_path / "jm" / "jobs.sqlite.version-1").mkdir()  # a name that cannot be written
        with pytest.raises(Fatal, match="the job store is unchanged"):
            async with opened(tmp_path):
                pass
        assert ask(tmp_path, "PRAGMA user_version") == [(1,)]
        assert ask(tmp_path, "SELECT count(*) FROM sqlite_master WHERE name = 'blocklist'") == [(0,)]

    async def test_one_that_fails_on_its_way_stays_as_it_was(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await filled_by_schema_1(tmp_path)
        steps = {1: ("CREATE TABLE checkpoints (x)",), 2: ("CREATE TABLE store (x)",)}  # the second cannot be done
        monkeypatch.setattr("emberkeep.adapters.job_store.schema._STEPS", steps)
        with pytest.raises(Fatal, match="already exists"):
            async with opened(tmp_path):
                pass
        assert ask(tmp_path, "PRAGMA user_version") == [(1,)]
        assert ask(tmp_path, "SELECT count(*) FROM sqlite_master WHERE name = 'checkpoints'") == [(0,)]

    @pytest.mark.req("SAFE-3")
    async def test_what_it_kept_of_damaged_jobs_counts_from_the_upgrade(self, tmp_path: Path) -> None:
        await filled(tmp_path)
        edit(tmp_path, "DROP TABLE damaged_since")
        async with opened(tmp_path):
            pass
        # The statement of the release before, which is started again between two starts of this one.
        edit(tmp_path, "INSERT INTO damaged VALUES (?, ?, ?)", job(7).job_id, b"rubbish", b"")
        before = time.time() * 1000
        async with opened(tmp_path) as store:
            (kept,) = await store.damaged()
        async with opened(tmp_path) as store:
            assert await store.damaged() == [kept]
        assert kept.job_id == job(7).job_id
        assert kept.since_ms >= int(before) - 1


class TestANewerRelease:
    async def test_a_store_of_it_is_not_opened_and_not_changed(self, tmp_path: Path) -> None:
        await filled(tmp_path)
        edit(tmp_path, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
        before = (tmp_path / "jm" / "jobs.sqlite").read_bytes(), ask(tmp_path, "SELECT * FROM store")
        with pytest.raises(NewerFormat, match=f"version {SCHEMA_VERSION + 1} was written by a newer release"):
            async with opened(tmp_path):
                pass
        after = (tmp_path / "jm" / "jobs.sqlite").read_bytes(), ask(tmp_path, "SELECT * FROM store")
        assert after == before

    @pytest.mark.parametrize("column", ["handle", "attempt"])
    async def test_a_job_that_it_wrote_is_not_failed(self, tmp_path: Path, column: str) -> None:
        await filled(tmp_path)
        newer = encode_record(f"job-{column}", 9, b"{}")
        edit(tmp_path, f"UPDATE jobs SET {column} = ?", newer)
        async with opened(tmp_path) as store:
            with pytest.raises(NewerFormat, match="newer release"):
                await store.recover()
            with pytest.raises(NewerFormat, match="newer release"):
                await store.record_result(result_of(job(1)))
        assert ask(tmp_path, f"SELECT {column} FROM jobs") == [(newer,)]

    async def test_neither_is_one_with_a_graph_that_it_wrote(self, tmp_path: Path) -> None:
        await filled(tmp_path)
        ((handle,),) = ask(tmp_path, "SELECT handle FROM jobs")
        newer = msgspec.structs.replace(decode_handle(handle, where="test"), graph_version=2)
        edit(tmp_path, "UPDATE jobs SET handle = ?", encode_handle(newer))
        async with opened(tmp_path) as store:
            with pytest.raises(NewerFormat, match="job-graph version 2"):
                await store.recover()

    async def test_nor_one_with_pointers_that_it_wrote(self, tmp_path: Path) -> None:
        await filled(tmp_path)
        newer = encode_record("job-checkpoints", 9, b"{}")
        edit(tmp_path, "INSERT INTO checkpoints VALUES (?, ?)", job(1).job_id, newer)
        async with opened(tmp_path) as store:
            with pytest.raises(NewerFormat, match="job-checkpoints version 9"):
                await store.recover()

    async def test_results_that_it_wrote_are_not_passed_over(self, tmp_path: Path) -> None:
        await filled(tmp_path)
        edit(tmp_path, "UPDATE results SET result = ?", encode_record("job-result", 9, b"{}"))
        async with opened(tmp_path) as store:
            with pytest.raises(NewerFormat, match="job-result version 9"):
                await store.results()

    async def test_fields_that_it_added_survive_each_rewrite(self, tmp_path: Path) -> None:
        await filled(tmp_path)
        checkpoint = QueryCheckpoint(query="q", query_id="i", location="/c", batch_id=1, triggered_ms=1, committed_ms=2)
        async with opened(tmp_path) as store:
            await store.record_attempt(job(1).job_id, 1)
            await store.record_checkpoints(job(1).job_id, 1, (checkpoint,))
            await store.record_blocklist(Blocklist(revision=1))
        places = (
            ("jobs", "attempt", "job-attempt", 2),
            ("checkpoints", "pointers", "job-checkpoints", 1),
            ("blocklist", "list", "blocklist", 1),
        )
        for table, column, kind, version in places:
            ((data,),) = ask(tmp_path, f"SELECT {column} FROM {table}")
            fields = msgspec.json.decode(decode_record(data, kind, version, where=table))
            added = encode_record(kind, version, msgspec.json.encode({**fields, "added": 1}))
            edit(tmp_path, f"UPDATE {table} SET {column} = ?", added)
        async with opened(tmp_path) as store:
            await store.record_attempt(job(1).job_id, 2)
            await store.record_cancel(job(1).job_id)
            await store.record_checkpoints(job(1).job_id, 2, (msgspec.structs.replace(checkpoint, batch_id=2),))
            await store.record_blocklist(Blocklist(revision=2))
        for table, column, kind, version in places:
            ((data,),) = ask(tmp_path, f"SELECT {column} FROM {table}")
            assert msgspec.json.decode(decode_record(data, kind, version, where=table))["added"] == 1
