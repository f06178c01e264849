"""A JobManager's BLOB server and task managers' caches as they are wired in real processes, in one event loop.

Everything between them is real: HTTP, the server, its stores, the caches. Only processes are not started.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from emberkeep.adapters.blobs.client import BlobThreads, HttpBlobSource, HttpBlobUploads
from emberkeep.adapters.blobs.files import BlobFiles
from emberkeep.adapters.http.offload import Offload
from emberkeep.adapters.http.rpc import HttpRpcClient
from emberkeep.adapters.http.rpc_server import rpc_routes
from emberkeep.adapters.http.security import AccessPolicy, secure
from emberkeep.adapters.http.server import bind_port, serve_http
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.ids import InstanceId, JobId, TaskManagerId
from emberkeep.base.system import real_system
from emberkeep.blobs.model import BlobKey
from emberkeep.daemons.message_blobs import CacheMessageBlobs, ServerMessageBlobs
from emberkeep.jobmanager.blobs.server import BlobServer
from emberkeep.protocol.encoding.offload import MessageBlobs
from emberkeep.protocol.messages.task_managers import (
    RegisterTaskManager,
    TaskManagerHeartbeat,
    TaskManagerHeartbeatReply,
    TaskManagerRegistered,
)
from emberkeep.slots.model import ResourceProfile, RuntimeVersions, TaskManagerInfo
from emberkeep.taskmanager.blobs.cache import BlobCache
from emberkeep.taskmanager.ports import TaskManagerPorts
from emberkeep.taskmanager.service import TaskManagerService
from tests.support.agent_store import MemoryAgentStore
from tests.support.fake_launcher import FakeLauncher
from tests.support.memory_blobs import MemoryBlobStorage, MemoryFiles, always_leads
from tests.support.scripted_service import ScriptedService
from tests.unit.rest.fake_gateway import FakeGateway
from tests.unit.rest.server import TOKEN, running_site

MINIMUM = 1024**2
RETENTION = 1800.0


class Counted:
    """MessageBlobs that count what passes. ``acknowledges`` False: acknowledgements get lost on their way."""

    def __init__(self, blobs: MessageBlobs) -> None:
        self._blobs = blobs
        self.acknowledges = True
        self.fetched: list[BlobKey] = []
        self.released: list[BlobKey] = []

    async def store(self, owner: JobId, data: bytes, holder: str, attempt: int) -> BlobKey:
        return await self._blobs.store(owner, data, holder, attempt)

    async def fetch(self, owner: JobId, key: BlobKey, holder: str, limit: int) -> bytes:
        content = await self._blobs.fetch(owner, key, holder, limit)
        self.fetched.append(key)
        return content

    async def release(self, owner: JobId, key: BlobKey, holder: str, attempt: int) -> None:
        if self.acknowledges:
            self.released.append(key)
            await self._blobs.release(owner, key, holder, attempt)


@dataclass
class JobManagerSite:
    """``address``: of its RPC, ``blobs``: of its BLOB server. ``rpc`` sends what the JobManager sends."""

    address: str
    blobs: str
    server: BlobServer
    rpc: HttpRpcClient

    def references(self, owner: JobId) -> int:
        owners = self.server._machine.state.owners
        return sum(len(record.holders) for record in owners[owner].records.values()) if owner in owners else 0


@dataclass
class TaskManagerSite:
    """``kill`` closes its port; what it serves ends."""

    address: str
    cache: BlobCache
    blobs: Counted
    uploads: HttpBlobUploads
    rpc: HttpRpcClient
    launcher: FakeLauncher
    kill: contextlib.AsyncExitStack


@contextlib.asynccontextmanager
async def job_manager_site(directory: Path) -> AsyncIterator[JobManagerSite]:
    """A BLOB server behind its REST resources, and RPC that lets task managers register."""
    system, disk = real_system(), MemoryFiles()
    server = BlobServer(
        Configuration(), BlobFiles(directory / "server"), MemoryBlobStorage(disk, disk), confirm=always_leads
    )
    await server.open((), ())
    async with contextlib.AsyncExitStack() as stack:
        running = asyncio.create_task(server.run())
        stack.push_async_callback(_end, running)
        site = await stack.enter_async_context(running_site(directory, FakeGateway(), blobs=server))
        offload = Offload(ServerMessageBlobs(server), system, minimum=MINIMUM)
        registered = TaskManagerRegistered(epoch=1, heartbeat_interval=5.0)
        heard = TaskManagerHeartbeatReply(epoch=1, known=True)
        service = ScriptedService({RegisterTaskManager: registered, TaskManagerHeartbeat: heard})
        registrations = await stack.enter_async_context(serving(rpc_routes(service, offload)))
        rpc = HttpRpcClient(TOKEN, offload)
        stack.push_async_callback(rpc.close)
        yield JobManagerSite(registrations, site.base.removeprefix("http://"), server, rpc)


@contextlib.asynccontextmanager
async def task_manager_site(
    directory: Path, job_manager: JobManagerSite, number: int
) -> AsyncIterator[TaskManagerSite]:
    """A task manager's service over a launcher that starts nothing, with a BLOB cache of its own."""
    system = real_system()
    async with contextlib.AsyncExitStack() as stack:
        threads = BlobThreads(TOKEN)
        stack.callback(threads.close)
        source = HttpBlobSource(threads, lambda: job_manager.blobs, max_size=2**32)
        cache = BlobCache(system, BlobFiles(directory), None, [source], retention=RETENTION)
        await cache.start()
        stack.push_async_callback(cache.close)
        uploads = HttpBlobUploads(threads, lambda: job_manager.blobs)
        blobs = Counted(CacheMessageBlobs(cache, uploads))
        offload = Offload(blobs, system, minimum=MINIMUM)
        rpc = HttpRpcClient(TOKEN, offload)
        stack.push_async_callback(rpc.close)
        launcher = FakeLauncher()
        port = bind_port("127.0.0.1", 0)
        info = _info(number, port.address)
        ports = TaskManagerPorts(rpc=rpc, launcher=launcher, store=MemoryAgentStore())
        service = TaskManagerService(system, Configuration(), info, ports, job_manager.address)
        app = web.Application()
        secure(app, AccessPolicy(TOKEN))
        app.add_routes(rpc_routes(service, offload))
        kill = contextlib.AsyncExitStack()
        stack.push_async_callback(kill.aclose)
        kill.push_async_callback((await serve_http(app, port)).close)
        running = asyncio.create_task(service.run())
        stack.push_async_callback(_end, running)
        yield TaskManagerSite(port.address, cache, blobs, uploads, rpc, launcher, kill)


def _info(number: int, address: str) -> TaskManagerInfo:
    return TaskManagerInfo(
        id=TaskManagerId(f"tm-{number}"),
        instance=InstanceId(f"{number:032x}"),
        address=address,
        host="127.0.0.1",
        node_id=f"node-{number}",
        pid=1,
        slots=1,
        driver_places=4,
        total=ResourceProfile(cores=2, memory_mb=8000),
        runtime=RuntimeVersions(python="3.11", spark="4.3.0"),
        java_major=17,
        started_ms=0,
    )


@contextlib.asynccontextmanager
async def serving(routes: list[web.RouteDef]) -> AsyncIterator[str]:
    """The address of an application with these routes behind the security layer."""
    app = web.Application()
    secure(app, AccessPolicy(TOKEN))
    app.add_routes(routes)
    server = await serve_http(app, bind_port("127.0.0.1", 0))
    try:
        yield server.address
    finally:
        await server.close()


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
