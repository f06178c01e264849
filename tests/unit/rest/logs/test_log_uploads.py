"""Task managers' logs by way of the BLOB server: what readers get, and what is left of it afterwards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from emberkeep.adapters.blobs.files import BlobFiles
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Absent, InvalidInput, RetryLater
from emberkeep.base.ids import InstanceId, JobId, TaskManagerId
from emberkeep.blobs.model import NO_JOB, BlobKey
from emberkeep.daemons.jobmanager.remote_logs import BlobRemoteLogs
from emberkeep.jobmanager.blobs.server import BlobServer
from emberkeep.log_records.model import Selection
from emberkeep.log_records.scan import Search
from emberkeep.protocol.messages.logs import LogUploaded, UploadLog
from emberkeep.rest.logs import uploads as log_uploads
from emberkeep.rest.logs.uploads import LogUploads
from emberkeep.rest.ports import LogChunk, LogEntry, LogKind, LogQuery, LogSearch
from emberkeep.rest.serving.log_reader import LogReader
from tests.support.memory_blobs import MemoryBlobStorage, MemoryFiles, always_leads
from tests.support.memory_rpc import MemoryNetwork
from tests.unit.rest.fake_gateway import job_id
from tests.unit.rest.server import ListedLogs

pytestmark = [pytest.mark.anyio, pytest.mark.req("BLOB-20")]

ADDRESS = "task-manager:1"
TASK_MANAGER = TaskManagerId("tm-1")
JOB = job_id(1)
TEXT = "zwölf Zeilen\n".encode()


class OwnClock:
    """Time that stands still until a test moves it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        return 0


class Uploads:
    """What ``HttpBlobUploads`` does, without HTTP."""

    def __init__(self, server: BlobServer) -> None:
        self.server = server
        self.puts: list[tuple[JobId, BlobKey, str]] = []

    async def put_bytes(self, owner: JobId, data: bytes, holders: Sequence[str]) -> BlobKey:
        key = await self.server.store_bytes(owner, data, holders)
        self.puts.append((owner, key, holders[0]))
        return key

    async def release(self, owner: JobId, key: BlobKey, holder: str) -> None:
        self.server.release(owner, key, holder)


@dataclass
class Bench:
    server: BlobServer
    uploads: Uploads
    held: ListedLogs
    network: MemoryNetwork
    logs: BlobRemoteLogs
    file: Path
    clock: OwnClock = field(default_factory=OwnClock)

    def add(self, log_id: str, owner: JobId | None = None, *, complete: bool = False) -> None:
        kind = LogKind.TASK_MANAGER if owner is None else LogKind.DRIVER_STDOUT
        size = self.file.stat().st_size
        self.held.logs[log_id] = LogEntry(
            id=log_id, kind=kind, path=self.file, size=size, mtime_ms=1, complete=complete, job_id=owner, attempt=1
        )

    async def read(self, log_id: str, offset: int = 0, limit: int = 1000, **more: object) -> LogChunk:
        return await self.logs.read(ADDRESS, log_id, query(offset=offset, limit=limit, **more))

    def references(self) -> int:
        return sum(
            len(record.holders)
            for owner in self.server._machine.state.owners.values()
            for record in owner.records.values()
        )


def query(**changes: object) -> LogQuery:
    return LogQuery(**{"offset": 0, "limit": 1000, "wait": 0.0, **changes})  # type: ignore[arg-type]


def wanted(text: str) -> Search:
    return Search(selection=Selection(texts=(text,)), offset=0, limit=10, most_bytes=1000)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    disk = MemoryFiles()
    server = BlobServer(
        Configuration(), BlobFiles(tmp_path / "blobs"), MemoryBlobStorage(disk, disk), confirm=always_leads
    )
    await server.open([JOB], ())
    running = asyncio.create_task(server.run())
    await asyncio.sleep(0)
    server.job_submitted(JOB, ())
    file = tmp_path / "log"
    file.write_bytes(TEXT)
    held, network, uploads, clock = ListedLogs(), MemoryNetwork(), Uploads(server), OwnClock()
    reader = LogReader(held, time.monotonic, poll_interval=0.01)
    network.attach(ADDRESS, LogUploads(TASK_MANAGER, InstanceId("f" * 32), reader, uploads, clock))
    yield Bench(server, uploads, held, network, BlobRemoteLogs(network, server, timeout=60), file, clock)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_logs_are_listed_of_all_and_of_one_job(bench: Bench) -> None:
    bench.add("driver", JOB, complete=True)
    bench.add("taskmanager.log")

    everything = await bench.logs.entries(ADDRESS, None)

    assert [(log.name, log.kind, log.size, log.job_id, log.complete, log.attempt) for log in everything] == [
        ("driver", "driver-stdout", 14, JOB, True, 1),
        ("taskmanager.log", "taskmanager", 14, "", False, 1),
    ]
    assert await bench.logs.entries(ADDRESS, JOB) == everything[:1]
    assert await bench.logs.entries(ADDRESS, job_id(2)) == []


async def test_a_piece_arrives_as_it_is_and_leaves_nothing_referenced(bench: Bench) -> None:
    bench.add("driver", JOB)

    chunk = await bench.read("driver", 2, 5)

    assert (chunk.data, chunk.offset, chunk.size, chunk.complete) == (TEXT[2:7], 2, 14, False)
    owner, _, holder = bench.uploads.puts[0]
    assert owner == JOB
    assert holder.startswith("log-tm-1-driver-")
    assert bench.references() == 0
    await bench.server.collect()
    assert await bench.server.collect() == 1


async def test_an_empty_piece_needs_no_blob(bench: Bench) -> None:
    bench.add("driver", JOB, complete=True)

    chunk = await bench.read("driver", 14)

    assert (chunk.data, chunk.offset, chunk.size, chunk.complete) == (b"", 14, 14, True)
    assert bench.uploads.puts == []


async def test_an_offset_beyond_the_end_means_the_new_file_or_nothing(bench: Bench) -> None:
    bench.add("driver", JOB)

    assert (await bench.read("driver", 5000)).data == TEXT
    exact = await bench.read("driver", 5000, from_start=False)
    assert (exact.data, exact.offset, exact.size) == (b"", 5000, 14)


async def test_logs_can_be_read_after_the_process_and_after_the_job(bench: Bench) -> None:
    bench.add("ended", JOB, complete=True)
    bench.add("ending", JOB)
    bench.server.job_ended(JOB)

    assert (await bench.read("ended")).data == TEXT
    assert (await bench.read("ending")).data == TEXT
    assert {owner for owner, _, _ in bench.uploads.puts} == {NO_JOB}
    assert bench.references() == 0


async def test_readers_of_one_log_do_not_disturb_each_other(bench: Bench) -> None:
    bench.add("driver", JOB)

    async def read(number: int) -> None:
        offset = number % 3
        assert (await bench.read("driver", offset)).data == TEXT[offset:]

    async def clean() -> None:
        while True:
            await bench.server.collect()
            await asyncio.sleep(0)

    cleaning = asyncio.create_task(clean())
    await asyncio.gather(*(read(number) for number in range(60)))
    cleaning.cancel()
    assert bench.references() == 0


async def test_what_a_reader_left_behind_goes_when_the_log_is_asked_for_again(bench: Bench) -> None:
    bench.add("driver", JOB)
    request = UploadLog(log_id="driver", offset=0, limit=3, wait=0, from_start=True)
    for _ in range(3):  # answers that were lost
        await bench.network.call(ADDRESS, request, LogUploaded, timeout=60)
    assert bench.references() == 3

    await bench.read("driver")
    assert bench.references() == 3

    bench.clock.seconds += log_uploads.SERVED_SECONDS
    await bench.read("driver")
    assert bench.references() == 0


async def test_pieces_of_logs_beyond_the_remembered_ones_are_released(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_uploads, "_MAX_LOGS", 2)
    for name in ("a", "b", "c"):
        bench.add(name, JOB)
        request = UploadLog(log_id=name, offset=0, limit=3, wait=0, from_start=True)
        await bench.network.call(ADDRESS, request, LogUploaded, timeout=60)  # an answer that was lost

    assert bench.references() == 2


async def test_a_piece_that_was_deleted_before_it_was_read_is_asked_for_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.add("driver", JOB)

    async def gone(_owner: JobId, _key: BlobKey) -> Path:
        raise Absent("deleted")

    monkeypatch.setattr(bench.server, "path", gone)
    with pytest.raises(RetryLater, match="was deleted before it could be read"):
        await bench.read("driver")
    assert bench.references() == 0


async def test_a_follower_waits_for_new_bytes(bench: Bench) -> None:
    bench.add("driver", JOB)
    waiting = asyncio.create_task(bench.read("driver", 14, wait=60.0))
    await asyncio.sleep(0)

    bench.file.write_bytes(TEXT + b"more")
    bench.add("driver", JOB)

    async with asyncio.timeout(60):
        chunk = await waiting
    assert (chunk.data, chunk.offset) == (b"more", 14)


async def test_refusals_keep_their_kind(bench: Bench) -> None:
    bench.add("driver", JOB)
    with pytest.raises(Absent, match="no log x"):
        await bench.read("x")
    with pytest.raises(Absent):
        await bench.read("driver", job_id=job_id(2))
    with pytest.raises(InvalidInput):
        await bench.read("../../etc/passwd")
    with pytest.raises(InvalidInput, match="1 to"):
        await bench.read("driver", limit=2**40)
    with pytest.raises(InvalidInput, match="1 to"):
        await bench.read("driver", wait=float("nan"))
    assert bench.uploads.puts == []


async def test_a_search_is_carried_out_where_the_log_is(bench: Bench) -> None:
    bench.add("driver", JOB, complete=True)

    found = await bench.logs.search(ADDRESS, "driver", LogSearch(search=wanted("ZWÖLF"), job_id=JOB))

    assert [record.data for record in found.found.records] == [TEXT]
    assert (found.size, found.complete) == (14, True)
    assert bench.uploads.puts == []


@pytest.mark.parametrize(
    "changes",
    [{"limit": 0}, {"limit": 10**6}, {"most_bytes": 2**40}, {"offset": -1}, {"selection": Selection(texts=("",))}],
)
async def test_a_search_without_bounds_is_refused(bench: Bench, changes: dict[str, Any]) -> None:
    bench.add("driver", JOB)
    search = msgspec.structs.replace(wanted("x"), **changes)

    with pytest.raises(InvalidInput, match="needs bounds"):
        await bench.logs.search(ADDRESS, "driver", LogSearch(search=search))


async def test_a_task_manager_that_is_gone(bench: Bench) -> None:
    with pytest.raises(RetryLater, match=r"gone:1 does not answer"):
        await bench.logs.entries("gone:1", None)
    with pytest.raises(RetryLater, match=r"gone:1 does not answer"):
        await bench.logs.read("gone:1", "driver", query())


@pytest.mark.parametrize("log_id", ["a", "a" * 200])
async def test_holders_names_are_bounded(bench: Bench, log_id: str) -> None:
    bench.add(log_id)
    await bench.read(log_id)
    assert len(bench.uploads.puts[0][2]) <= 200
