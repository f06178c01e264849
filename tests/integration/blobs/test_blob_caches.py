"""A JobManager's BLOB server and many caches on real ports: all get the bytes, the server sends them seldom."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web

from emberkeep.adapters.blobs.client import BlobThreads
from emberkeep.adapters.http.rpc import HttpRpcClient
from emberkeep.adapters.http.security import AccessPolicy, secure
from emberkeep.adapters.http.server import bind_port, serve_http
from emberkeep.adapters.http.token_file import load_token
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Absent
from emberkeep.base.ids import InstanceId, JobId, TaskManagerId
from emberkeep.base.system import real_system
from emberkeep.blobs.model import BlobKey, transient
from emberkeep.daemons.blob_caching import BlobLink, BlobPlaces, blob_link
from emberkeep.daemons.jobmanager.alone import job_manager_process
from emberkeep.daemons.process_main import Services
from emberkeep.protocol.messages.task_manager_reports import TaskManagerReport
from emberkeep.protocol.messages.task_managers import RegisterTaskManager, TaskManagerRegistered
from emberkeep.rest.blobs import task_manager_blobs
from emberkeep.slots.model import ResourceProfile, RuntimeVersions, TaskManagerInfo

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

MIB = 1024**2
JOB = JobId("a" * 32)


@dataclass(frozen=True)
class Cluster:
    """A JobManager at ``address`` without any task manager."""

    address: str
    token: str
    configuration: Configuration
    layout: StateLayout
    services: Services


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    configuration = Configuration().with_texts(
        {
            "rest.port": "0",
            "rest.address": "127.0.0.1",
            "rest.bind-address": "127.0.0.1",
            "heartbeat.timeout": "10 min",
            "security.encryption": "none",
        },
        "test",
    )
    layout = StateLayout(tmp_path, configuration)
    services = Services()
    async with job_manager_process(real_system(), configuration, layout, services, asyncio.Event()) as job_manager:
        yield Cluster(job_manager.address, load_token(layout.token_file), configuration, layout, services)
    await services.cancel()


@contextlib.asynccontextmanager
async def cache(cluster: Cluster, number: int, *, ha: bool = False) -> AsyncIterator[BlobLink]:
    """What a task manager's process has of it: a cache that serves peers at a registered address."""
    port = bind_port("127.0.0.1", 0)
    places = BlobPlaces(
        cluster.layout.root / f"cache-{number}",
        cluster.layout.ha_blobs if ha else "",
        server=lambda: cluster.address,
        own_address=port.address,
    )
    threads = BlobThreads(cluster.token)
    async with blob_link(real_system(), cluster.configuration, places, threads, cluster.services) as link:
        app = web.Application()
        secure(app, AccessPolicy(cluster.token))
        app.add_routes(task_manager_blobs.routes(link.cache.serve))
        server = await serve_http(app, port)
        await register(cluster, number, port.address)
        try:
            yield link
        finally:
            await server.close()


async def register(cluster: Cluster, number: int, address: str) -> None:
    info = TaskManagerInfo(
        id=TaskManagerId(f"tm-{number}"),
        instance=InstanceId(f"{number:032x}"),
        address=address,
        host="127.0.0.1",
        node_id="node",
        pid=1,
        slots=1,
        driver_places=0,
        total=ResourceProfile(cores=1, memory_mb=1),
        runtime=RuntimeVersions(python="3", spark="4"),
        java_major=17,
        started_ms=0,
    )
    request = RegisterTaskManager(info=info, report=TaskManagerReport(sequence=1, allocations=(), drivers=()))
    rpc = HttpRpcClient(cluster.token)
    await rpc.call(cluster.address, request, TaskManagerRegistered, timeout=60.0)
    await rpc.close()


async def uploaded(link: BlobLink, content: bytes) -> BlobKey:
    key = await link.uploads.put_bytes(JOB, content, ["test"])
    assert key == transient(hashlib.sha256(content).hexdigest())
    return key


@pytest.mark.req("BLOB-22")
async def test_the_server_sends_a_blob_to_few_of_many_caches(cluster: Cluster) -> None:
    content = os.urandom(MIB)
    async with contextlib.AsyncExitStack() as stack:
        links = [await stack.enter_async_context(cache(cluster, number)) for number in range(40)]
        key = await uploaded(links[0], content)
        paths = await asyncio.gather(*(link.cache.acquire(JOB, key, "task") for link in links))
        assert len(set(paths)) == len(links)
        assert all(path.read_bytes() == content for path in paths)
        reports = [link.cache.report() for link in links]
        assert sum(report.served for report in reports) >= len(links) // 2, "most came from other caches"
        assert sum(report.downloads for report in reports) == len(links)
        await links[0].uploads.release(JOB, key, "test")
        await links[0].uploads.release(JOB, key, "test")


@pytest.mark.req("BLOB-7")
@pytest.mark.req("BLOB-19")
async def test_what_nobody_has_is_absent_and_what_is_stored_is_found(cluster: Cluster) -> None:
    async with cache(cluster, 1, ha=True) as link:
        missing = transient(hashlib.sha256(b"never stored").hexdigest())
        with pytest.raises(Absent, match=str(missing)):
            await link.cache.acquire(JOB, missing, "task")
        contents = [os.urandom(size) for size in (0, 1, 16 * 1024, 3 * MIB + 1)]
        keys = [await uploaded(link, content) for content in contents]
        for key, content in zip(keys, contents, strict=True):
            assert (await link.cache.acquire(JOB, key, "task")).read_bytes() == content
        directory = cluster.layout.root / "cache-1"
        assert (directory / JOB).is_dir()
    assert not (directory / JOB).exists(), "an orderly exit deletes everything"
