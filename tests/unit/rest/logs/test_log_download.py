"""A whole log as a file."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import JobId
from emberkeep.protocol.rest_logs import LogInfo
from emberkeep.rest.logs import download
from emberkeep.rest.ports import LogChunk, LogFound, LogQuery, LogSearch
from tests.unit.rest.fake_gateway import FakeGateway, job_id
from tests.unit.rest.one_handler import one_handler
from tests.unit.rest.server import Site, eventually, running_site

LOG = f"/v1/jobs/{job_id(1)}/logs/tm-127.0.0.2-1~driver.stderr/download"
TEXT = bytes(range(256)) * 10


class GrowingLog:
    """A remote log that grows with each read, and cannot be read any more after ``lasts`` reads."""

    def __init__(self) -> None:
        self.reads = 0
        self.lasts = 1000

    async def entries(self, address: str, job_id: JobId | None) -> list[LogInfo]:
        return []

    async def read(self, address: str, log_id: str, query: LogQuery) -> LogChunk:
        if self.reads == self.lasts:
            raise RetryLater("the task manager does not answer")
        self.reads += 1
        data = (TEXT + b"more" * self.reads)[query.offset : query.offset + query.limit]
        size = len(TEXT) if self.reads == 1 else len(TEXT) + 4
        return LogChunk(data=data, offset=query.offset, size=size, complete=False)

    async def search(self, address: str, log_id: str, wanted: LogSearch) -> LogFound:
        raise AssertionError(log_id)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> GrowingLog:
    monkeypatch.setattr(download, "MAX_LIMIT", 1000)
    return GrowingLog()


@pytest.fixture
async def served(tmp_path: Path, gateway: FakeGateway, log: GrowingLog) -> AsyncIterator[Site]:
    async with running_site(tmp_path, gateway, remote_logs=log) as site:
        yield site


async def test_a_log_is_downloaded_as_far_as_it_is_written(served: Site, log: GrowingLog) -> None:
    answer = await served.get(LOG)

    assert (answer.status, answer.body) == (200, TEXT)
    assert log.reads == 3
    assert answer.headers["Content-Disposition"] == 'attachment; filename="driver.stderr.txt"'
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_a_download_that_breaks_off_does_not_look_whole(served: Site, log: GrowingLog) -> None:
    log.lasts = 2

    with pytest.raises(aiohttp.ClientError):
        await served.get(LOG)


async def test_a_client_that_goes_away_is_no_error_of_the_job_manager(served: Site, log: GrowingLog) -> None:
    async def endless(address: str, log_id: str, query: LogQuery) -> LogChunk:
        return LogChunk(data=b"x" * 1024**2, offset=query.offset, size=1024**4, complete=False)

    log.read = endless  # type: ignore[method-assign]
    with capture_logs() as logs:
        async with served.open("GET", LOG) as answer:
            await answer.content.readany()
            answer.close()
        await eventually(lambda: bool(logs))

    assert [(line["event"], line["log_level"]) for line in logs] == [
        ("the client has ended the download of a log", "info")
    ]


async def test_a_client_that_goes_away_before_the_end_is_no_error_either() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        async def pieces() -> AsyncGenerator[bytes]:
            """A search that finds nothing more after the client has gone."""
            yield b"the only line\n"
            await eventually(lambda: request.transport is None)

        return await download.send_file(request, "a-log", pieces(), {})

    async with one_handler(handle) as served, aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{served.port}/") as answer:
            await answer.content.readany()
            answer.close()
        await eventually(lambda: bool(served.ends))

    assert served.ends == [None]


async def test_a_log_that_cannot_be_read_is_refused(served: Site, log: GrowingLog) -> None:
    log.lasts = 0

    assert (await served.get(LOG)).problem().status == 503
