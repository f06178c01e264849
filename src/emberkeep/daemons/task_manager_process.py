"""A task manager, wired: working directory, process supervisor, RPC and log port, actors."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import structlog
from aiohttp import web

from emberkeep.adapters.http_rpc import HttpRpcClient, rpc_routes
from emberkeep.adapters.http_security import AccessPolicy, check_bind_address, secure
from emberkeep.adapters.http_server import BoundPort, bind_port, serve_http
from emberkeep.adapters.processes import ProcessSupervisor
from emberkeep.adapters.rpc_offload import Offload
from emberkeep.adapters.token_file import load_or_create_token
from emberkeep.base.config import Configuration
from emberkeep.base.errors import Conflict, EmberkeepError, Fatal
from emberkeep.base.ids import InstanceId, TaskManagerId, parse_task_manager_id
from emberkeep.base.options import (
    BLOB_DIRECTORY,
    BLOB_RETENTION,
    CANCELLATION_TIMEOUT,
    CORES,
    DRIVER_PLACES,
    JOB_MANAGER_ADDRESS,
    LOG_RETENTION,
    MEMORY,
    OFFLOAD_MIN_SIZE,
    REST_ADDRESS,
    REST_PORT,
    SLOTS,
    TASK_MANAGER_HOST,
    TASK_MANAGER_ID,
    TASK_MANAGER_NODE,
    TASK_MANAGER_PORT,
    TOKEN_FILE,
)
from emberkeep.base.process_identity import own_identity
from emberkeep.base.state_layout import StateLayout, WorkingDirectory
from emberkeep.base.system import System
from emberkeep.blobs.ports import BlobAccess
from emberkeep.daemons.agent_files import AgentLife, SlotsFile, read_agent_life, write_agent_life
from emberkeep.daemons.blob_caching import BlobPlaces, blob_link
from emberkeep.daemons.launcher import Node, ProcessLauncher
from emberkeep.daemons.leader_following import follow_leader
from emberkeep.daemons.log_catalogue import TaskManagerLogs
from emberkeep.daemons.log_retention import prune_logs
from emberkeep.daemons.log_uploads import LogUploads
from emberkeep.daemons.message_blobs import CacheMessageBlobs
from emberkeep.daemons.process_main import Services
from emberkeep.daemons.state_gateways import StateGatewayLink, state_gateway_link
from emberkeep.protocol.messages import BlobCacheReport
from emberkeep.rest import task_manager_blobs
from emberkeep.rest.log_reader import LogReader
from emberkeep.slots.model import ResourceProfile, RuntimeVersions, TaskManagerInfo
from emberkeep.spark.distribution import spark_version
from emberkeep.spark.java import JavaRuntime, find_java
from emberkeep.taskmanager.blob_cache import BlobCache
from emberkeep.taskmanager.library_cache import LibraryCache
from emberkeep.taskmanager.library_cache_archives import UnpackedArchives
from emberkeep.taskmanager.ports import NodeUsage
from emberkeep.taskmanager.service import TaskManagerService

log = structlog.get_logger(__name__)
_MEMORY_SHARE = 0.8
_SHUTDOWN_MARGIN = 30.0  # seconds beyond the grace, for killing and a last message
_MIB = 1024**2


def task_manager_id(configuration: Configuration) -> TaskManagerId:
    """The configured id, else one made from the host. Raises InvalidInput."""
    return parse_task_manager_id(configuration[TASK_MANAGER_ID] or f"tm-{configuration[TASK_MANAGER_HOST]}")


@dataclass
class TaskManagerProcess:
    """A task manager that serves; ``address`` is where. ``retiring``: it ends its work before it ends."""

    address: str
    service: TaskManagerService
    retiring: bool = False


@contextlib.asynccontextmanager
async def task_manager_process(
    system: System, configuration: Configuration, layout: StateLayout, services: Services
) -> AsyncIterator[TaskManagerProcess]:
    """Start a task manager, with what its earlier life in this working directory has left.

    On leaving, its drivers and executors go on and its slots stay theirs, for its next life; they end, and all that it
    has kept is deleted, where ``retiring`` is set by then, or the JobManager refuses it for good.

    Raises Fatal (no Java, port in use, working directory in use or not writable), InvalidInput.
    """
    host = configuration[TASK_MANAGER_HOST]
    check_bind_address(host, bool(configuration[TOKEN_FILE]))
    java = await asyncio.to_thread(find_java, os.environ)
    identity = task_manager_id(configuration)
    directory = WorkingDirectory(layout.working_directory(identity))
    token = load_or_create_token(layout.token_file)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(_locked(directory))
        supervisor = _supervisor(directory, services, stack)
        port = _bind(
            host, configuration[TASK_MANAGER_PORT], await asyncio.to_thread(read_agent_life, directory.agent_record)
        )
        stack.callback(port.close)
        places = BlobPlaces(
            Path(configuration[BLOB_DIRECTORY] or directory.blobs),
            layout.ha_blobs,
            server=lambda: service.job_manager,
            own_address=port.address,
        )
        blobs = await stack.enter_async_context(blob_link(system, configuration, places, token, services))
        messages = CacheMessageBlobs(blobs.cache, blobs.uploads)
        offload = Offload(messages, system, minimum=configuration[OFFLOAD_MIN_SIZE])
        rpc = HttpRpcClient(token, offload)
        stack.push_async_callback(rpc.close)
        node = Node(identity, host, directory, layout.token_file, java, configuration)
        libraries = await _libraries(blobs.cache, directory, configuration, services, stack)
        gateway = await stack.enter_async_context(
            state_gateway_link(system, configuration, directory, layout, services)
        )
        launcher = ProcessLauncher(node, supervisor, libraries, gateway)
        reader = LogReader(TaskManagerLogs(directory, launcher.is_live), system.clock.monotonic)
        stack.callback(reader.close)
        checkpoints = "" if gateway is None else str(layout.checkpoints)
        info = _info(system, configuration, identity, port.address, java, checkpoints)
        await _announce(directory, info, port)
        service = TaskManagerService(
            system,
            configuration,
            info,
            rpc,
            launcher,
            SlotsFile(directory.slots_record),
            configuration[JOB_MANAGER_ADDRESS] or f"{configuration[REST_ADDRESS]}:{configuration[REST_PORT]}",
            usage=lambda: _usage(directory.root, blobs.cache.report(), gateway),
            logs=LogUploads(identity, info.instance, reader, blobs.uploads, system.clock),
            listeners=() if gateway is None else (gateway.upkeep,),
            local_state=gateway,
        )
        await _serve(service, offload, blobs.cache, AccessPolicy(token, hosts=frozenset({host})), port, stack)
        services.start("task manager", service.run())
        follow_leader(configuration, services, stack, service.follow)
        services.start("offloaded messages", offload.run())
        services.start(
            "log retention", prune_logs(directory.logs / "jobs", configuration[LOG_RETENTION], launcher.live_jobs)
        )
        process = TaskManagerProcess(port.address, service)
        try:
            yield process
        finally:
            if process.retiring or service.refused:
                await _retire(service, launcher, gateway, configuration[CANCELLATION_TIMEOUT])
            else:
                log.info("drivers and executors go on; the next task manager here takes them over")
                await launcher.leave()
                await libraries.leave()
                await blobs.cache.leave()


async def _serve(
    service: TaskManagerService,
    offload: Offload,
    cache: BlobCache,
    policy: AccessPolicy,
    port: BoundPort,
    stack: contextlib.AsyncExitStack,
) -> None:
    app = web.Application()
    secure(app, policy)
    app.add_routes([*rpc_routes(service, offload), *task_manager_blobs.routes(cache.serve)])
    server = await serve_http(app, port)
    stack.push_async_callback(server.close)


async def _retire(
    service: TaskManagerService, launcher: ProcessLauncher, gateway: StateGatewayLink | None, grace: float
) -> None:
    try:
        async with asyncio.timeout(grace + _SHUTDOWN_MARGIN):
            await service.shutdown(grace)
    except (TimeoutError, EmberkeepError) as error:
        log.error("the orderly end failed; everything is killed", reason=str(error))
    await launcher.kill_all()
    if gateway is not None:
        await asyncio.to_thread(gateway.upkeep.clear)


def _bind(host: str, configured: int, earlier: AgentLife | None) -> BoundPort:
    """The configured port; where any will do, the one of the earlier life, at which JobMasters ask. Raises Fatal."""
    if configured == 0 and earlier is not None:
        try:
            return bind_port(host, earlier.port, port_option=TASK_MANAGER_PORT.key)
        except Fatal as error:
            log.warning("the port of the earlier life is not to be had; JobMasters are told another", reason=str(error))
    return bind_port(host, configured, port_option=TASK_MANAGER_PORT.key)


async def _announce(directory: WorkingDirectory, info: TaskManagerInfo, port: BoundPort) -> None:
    """To the drivers here, and to the next life."""
    life = AgentLife(instance=info.instance, process=own_identity(), port=port.port)
    await asyncio.to_thread(write_agent_life, directory.agent_record, life)


async def _libraries(
    blobs: BlobAccess,
    directory: WorkingDirectory,
    configuration: Configuration,
    services: Services,
    stack: contextlib.AsyncExitStack,
) -> LibraryCache:
    libraries = LibraryCache(blobs, UnpackedArchives(directory.unpacked), retention=configuration[BLOB_RETENTION])
    await libraries.start()
    stack.push_async_callback(libraries.close)
    services.start("library cache", libraries.run())
    return libraries


def _supervisor(directory: WorkingDirectory, services: Services, stack: contextlib.AsyncExitStack) -> ProcessSupervisor:
    supervisor = ProcessSupervisor(directory.processes)
    watching = asyncio.create_task(supervisor.run(), name="process supervisor")

    async def end() -> None:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await supervisor.close()

    stack.push_async_callback(end)
    services.watch(watching)
    return supervisor


@contextlib.contextmanager
def _locked(directory: WorkingDirectory) -> Iterator[None]:
    try:
        directory.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(directory.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Fatal(
            f"cannot use the working directory {directory.root}: {error.strerror}",
            hint="check it, or set process.taskmanager.working-dir",
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(
                f"another task manager uses the working directory {directory.root}",
                hint="give each its own taskmanager.resource-id",
            ) from None
        yield
    finally:
        os.close(descriptor)


def _info(
    system: System,
    configuration: Configuration,
    identity: TaskManagerId,
    address: str,
    java: JavaRuntime,
    checkpoints: str,
) -> TaskManagerInfo:
    memory = configuration[MEMORY] or int(psutil.virtual_memory().total * _MEMORY_SHARE)
    cores = configuration[CORES] or os.cpu_count() or 1
    host = configuration[TASK_MANAGER_HOST]
    return TaskManagerInfo(
        id=identity,
        instance=InstanceId(system.ids.hex32()),
        address=address,
        host=host,
        node_id=configuration[TASK_MANAGER_NODE] or host,
        pid=os.getpid(),
        slots=configuration[SLOTS],
        driver_places=configuration[DRIVER_PLACES],
        total=ResourceProfile(cores=cores, memory_mb=memory // _MIB),
        runtime=RuntimeVersions(python=f"{sys.version_info.major}.{sys.version_info.minor}", spark=spark_version()),
        java_major=java.major,
        started_ms=system.clock.now_ms(),
        checkpoints=checkpoints,
    )


def _usage(directory: Path, blobs: BlobCacheReport, gateway: StateGatewayLink | None) -> NodeUsage:
    memory = psutil.virtual_memory()
    return NodeUsage(
        disk_free_mb=shutil.disk_usage(directory).free // _MIB,
        memory_used_mb=(memory.total - memory.available) // _MIB,
        cpu_percent=psutil.cpu_percent(),
        blobs=blobs,
        local_state=() if gateway is None else gateway.upkeep.jobs,
        state_gateway=None if gateway is None else gateway.upkeep.report(),
    )
