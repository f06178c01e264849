"""The BLOB cache over real connections: whatever the server and peers do, readers get the right bytes or an error."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from emberkeep.adapters.blobs.client import BlobThreads, HttpBlobSource
from emberkeep.adapters.blobs.files import BlobFiles
from emberkeep.base.clock import SystemClock
from emberkeep.base.errors import EmberkeepError, RetryLater
from emberkeep.base.system import System
from emberkeep.taskmanager.blobs.cache import BlobCache
from tests.support.seeded_ids import SeededIds
from tests.unit.adapters.blobs.blob_servers import TOKEN, BlobServerApp, raw_server, saying, served
from tests.unit.taskmanager.blobs.blob_stores import JOB, key_of

pytestmark = pytest.mark.anyio

MIB = 1024**2
CONTENTS = [os.urandom(size) for size in (0, 1, 16 * 1024, 300_000, 2 * MIB)]


@contextlib.asynccontextmanager
async def cache_at(directory: Path, address: str, *, patience: float = 60.0) -> AsyncIterator[BlobCache]:
    rng = random.Random(1)
    threads = BlobThreads(TOKEN)
    source = HttpBlobSource(threads, lambda: address, max_size=8 * MIB)
    system = System(SystemClock(), rng, SeededIds(rng))
    cache = BlobCache(system, BlobFiles(directory), None, [source], retention=1800.0, patience=patience)
    await cache.start()
    try:
        yield cache
    finally:
        await cache.close()
        threads.close()


def holding(contents: list[bytes]) -> BlobServerApp:
    app = BlobServerApp()
    app.blobs = {f"{JOB}/blobs/{key_of(content)}": content for content in contents}
    return app


@pytest.mark.req("BLOB-8")
async def test_thousands_of_readers_cause_one_download_per_key(tmp_path: Path) -> None:
    app = holding(CONTENTS)
    async with served(app.routes()) as address, cache_at(tmp_path, address) as cache:

        async def read(number: int) -> None:
            content = CONTENTS[number % len(CONTENTS)]
            path = await cache.acquire(JOB, key_of(content), f"task-{number}")
            assert path.stat().st_size == len(content)

        await asyncio.gather(*(read(number) for number in range(5000)))
        for content in CONTENTS:
            assert (await cache.acquire(JOB, key_of(content), "last")).read_bytes() == content
        assert len(app.requests) == len(CONTENTS)
        assert cache.report().received_bytes == sum(map(len, CONTENTS))


class FaultyServer:
    """Answers downloads from a seed: rightly, or in one of the ways in which servers, disks and networks fail."""

    def __init__(self, app: BlobServerApp, seed: int, lying_peer: str) -> None:
        self._app = app
        self._rng = random.Random(seed)
        self._lying_peer = lying_peer
        self.faults = 0

    async def get(self, request: web.Request) -> web.StreamResponse:
        content = self._app.blobs[request.path.removeprefix("/v1/jobs/")]
        kind = self._rng.randrange(10)
        self.faults += kind < 8
        match kind:
            case 0:
                return await self._torn(request, content)
            case 1:
                return web.Response(body=b"\x01" + content[1:])  # flipped
            case 2:
                return web.Response(body=content[: len(content) // 2])
            case 3:
                return web.Response(body=content + b"\0")
            case 4:
                return web.Response(body=self._rng.choice(CONTENTS) + b"of another")
            case 5:
                return web.Response(status=503, headers={"Retry-After": "0"})
            case 6 if request.query.get("direct") != "true":
                return web.Response(status=307, headers={"Location": f"http://{self._lying_peer}{request.path}"})
            case 7:
                return web.Response(status=500)
        return web.Response(body=content)

    async def _torn(self, request: web.Request, content: bytes) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_length = len(content)
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            await response.write(content[: self._rng.randrange(len(content) + 1)])
        assert request.transport is not None
        request.transport.abort()
        return response


@pytest.mark.req("BLOB-2")
@pytest.mark.req("BLOB-3")
@pytest.mark.req("BLOB-8")
@pytest.mark.parametrize("seed", range(4))
async def test_a_server_that_fails_in_every_way_never_harms(tmp_path: Path, seed: int) -> None:
    lying = saying(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nlie")
    async with raw_server(lying) as peer:
        faulty = FaultyServer(holding(CONTENTS), seed, peer)
        routes = [web.get("/v1/jobs/{jobid}/blobs/{key}", faulty.get)]
        async with served(routes) as address, cache_at(tmp_path, address, patience=0.0) as cache:
            failures = 0
            missing = set(range(len(CONTENTS)))
            for _ in range(200):
                for number in sorted(missing):
                    asking = [cache.acquire(JOB, key_of(CONTENTS[number]), f"task-{task}") for task in range(5)]
                    for result in await asyncio.gather(*asking, return_exceptions=True):
                        if isinstance(result, Path):
                            assert result.read_bytes() == CONTENTS[number]
                            missing.discard(number)
                        else:
                            assert isinstance(result, EmberkeepError), result
                            assert str(key_of(CONTENTS[number])) in str(result)
                            failures += 1
            assert not missing, "a good answer was not taken"
            assert failures
            assert faulty.faults
        assert list((tmp_path / ".incoming").iterdir()) == []


@pytest.mark.req("BLOB-8")
async def test_readers_wait_for_a_server_that_comes_back(tmp_path: Path) -> None:
    app = holding(CONTENTS)
    async with served(app.routes()) as first:
        address = first
    rng = random.Random(1)
    threads = BlobThreads(TOKEN)
    source = HttpBlobSource(threads, lambda: address, max_size=8 * MIB)
    cache = BlobCache(
        System(SystemClock(), rng, SeededIds(rng)),
        BlobFiles(tmp_path),
        None,
        [source],
        retention=1800.0,
        patience=120.0,
    )
    await cache.start()
    asking = [asyncio.create_task(cache.acquire(JOB, key_of(content), "driver")) for content in CONTENTS]
    done, _ = await asyncio.wait(asking, timeout=0.5)
    assert not done
    async with served(app.routes()) as second:
        address = second  # another leader
        for content, path in zip(CONTENTS, await asyncio.gather(*asking), strict=True):
            assert path.read_bytes() == content
    await cache.close()
    threads.close()


@pytest.mark.req("BLOB-8")
async def test_a_server_that_stays_away_is_an_error_for_all_who_wait(tmp_path: Path) -> None:
    async with served([]) as address:
        pass
    async with cache_at(tmp_path, address, patience=0.5) as cache:
        asking = [cache.acquire(JOB, key_of(CONTENTS[0]), f"task-{number}") for number in range(500)]
        for result in await asyncio.gather(*asking, return_exceptions=True):
            assert isinstance(result, RetryLater)
            assert address in result.message
