"""Wires a task manager: working directory, process supervisor, RPC and log port, actors."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import psutil
import structlog
from aiohttp import web

from emberkeep import __version__
from emberkeep.adapters.cgroups.port import Share
from emberkeep.adapters.http.auditing import logging_refusals
from emberkeep.adapters.http.driver_access import CalledDrivers, DriverAccess
from emberkeep.adapters.http.node_access import RPC_ROUTE
from emberkeep.adapters.http.offload import Offload
from emberkeep.adapters.http.rpc import HttpRpcClient
from emberkeep.adapters.http.rpc_server import rpc_routes
from emberkeep.adapters.http.security import AccessPolicy, check_bind_address, secure
from emberkeep.adapters.http.server import BoundPort, serve_http
from emberkeep.adapters.http.token_file import load_or_create_token
from emberkeep.adapters.leader_news.inquiry import TellsLeader
from emberkeep.adapters.processes.log_retention import prune_logs
from emberkeep.adapters.processes.resource_discovery import offered_addresses
from emberkeep.base.configuration.hosts import join_host_port
from emberkeep.base.configuration.layout import StateLayout, WorkingDirectory
from emberkeep.base.configuration.options.blobs import OFFLOAD_MIN_SIZE
from emberkeep.base.configuration.options.job_managers import JOB_MANAGER_ADDRESS, REST_ADDRESS, REST_PORT
from emberkeep.base.configuration.options.jobs import CANCELLATION_TIMEOUT
from emberkeep.base.configuration.options.logs import LOG_MIN_AGE, LOG_OUTPUT_MAX_SIZE, LOG_RETENTION
from emberkeep.base.configuration.options.security import TOKEN_FILE
from emberkeep.base.configuration.options.task_managers import (
    BUILD_CLASS_ARCHIVE,
    DRIVER_PLACES,
    MEMORY,
    MEMORY_LIMIT,
    SLOTS,
    TASK_MANAGER_BIND_HOST,
    TASK_MANAGER_HOST,
    TASK_MANAGER_NODE,
)
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.ids import InstanceId
from emberkeep.base.processes.process_identity import own_identity
from emberkeep.base.system import System
from emberkeep.daemons.announced_address import AnnouncedAddress, warn_of_announced_address
from emberkeep.daemons.encryption import check_unencrypted, open_tls
from emberkeep.daemons.leader_following import (
    follow_leader,
    is_highly_available,
    locate_by_zookeeper,
    tell_drivers,
)
from emberkeep.daemons.log_shipping import log_shipping
from emberkeep.daemons.message_blobs import CacheMessageBlobs
from emberkeep.daemons.process_main import Services
from emberkeep.daemons.records.agent_files import AgentLife, SlotsFile, write_agent_life
from emberkeep.daemons.taskmanager.class_archives import ArchiveBuild, building_class_archive
from emberkeep.daemons.taskmanager.holdings import Holdings, NodeMeter, Site, bind_host, offered_cores, open_holdings
from emberkeep.daemons.taskmanager.run_as import job_users, open_working_directory
from emberkeep.daemons.taskmanager.working_place import WorkingPlace
from emberkeep.identities.attempts import AttemptCredentials
from emberkeep.protocol.transport import RpcService
from emberkeep.rest.blobs import task_manager_blobs
from emberkeep.rest.logs.bounding import LogBounds, end_of
from emberkeep.rest.logs.uploads import LogUploads
from emberkeep.rest.serving.log_catalogue import TaskManagerLogs
from emberkeep.rest.serving.log_reader import LogReader
from emberkeep.slots.custom.addresses import amounts_of
from emberkeep.slots.model import ResourceProfile, RuntimeVersions, TaskManagerInfo
from emberkeep.slots.table.memory import MemoryLimit
from emberkeep.slots.table.state import TableState
from emberkeep.spark.distribution import spark_version
from emberkeep.spark.java import find_java
from emberkeep.taskmanager.memory_guard import MemoryGuard, resources_of
from emberkeep.taskmanager.ports import ProcessKey, TaskManagerPorts
from emberkeep.taskmanager.service import TaskManagerService

log = structlog.get_logger(__name__)
_MEMORY_SHARE = 0.8
_SHUTDOWN_MARGIN = 30.0  # seconds beyond the grace period, for killing and a last report
_MIB = 1024**2


@dataclass
class TaskManagerProcess:
    """A task manager that serves at ``url``, which is ``address`` with its scheme.

    ``retiring``: on leaving, end its drivers and executors first.
    """

    address: str
    url: str
    service: TaskManagerService
    retiring: bool = False


@contextlib.asynccontextmanager
async def task_manager_process(
    system: System,
    configuration: Configuration,
    layout: StateLayout,
    place: WorkingPlace,
    services: Services,
    *,
    archive_delay: float = 0.0,
) -> AsyncIterator[TaskManagerProcess]:
    """Start a task manager with what the previous process left in ``place``, which the caller must hold.

    After ``archive_delay`` seconds it has a class archive built, if none fits and the configuration permits that.

    On exit, drivers and executors continue to run and keep their slots for the next task manager process. If
    ``retiring`` is set by then, they end, and everything that the task manager has kept is deleted.

    Raises Fatal (no Java, no certificate, a failing discovery script, port in use, working directory not writable),
    InvalidInput, Conflict (its local state is in use or belongs to another cluster).
    """
    hosts = (configuration[TASK_MANAGER_HOST], bind_host(configuration))
    for each in hosts:
        check_bind_address(each, bool(configuration[TOKEN_FILE]))
    users = job_users(configuration)
    await asyncio.to_thread(open_working_directory, layout, place.directory, tuple(set(users.values())))
    java = await asyncio.to_thread(find_java, os.environ)
    addresses = await asyncio.to_thread(offered_addresses, configuration)
    token = load_or_create_token(layout.token_file)
    job_manager, _, _ = _job_manager(configuration).rpartition(":")
    check_unencrypted(configuration, *hosts, job_manager)
    await warn_of_announced_address(
        AnnouncedAddress(
            *(TASK_MANAGER_HOST.key, configuration[TASK_MANAGER_HOST]),
            *(TASK_MANAGER_BIND_HOST.key, bind_host(configuration)),
            peer=job_manager,
        )
    )
    tls = await asyncio.to_thread(open_tls, configuration, layout, *hosts, founds=False)
    if tls is not None:
        services.start("certificate", tls.keep())
    links = None if tls is None else tls.links
    site = Site(system, configuration, layout, services, place, java, token, links, users, addresses)
    async with contextlib.AsyncExitStack() as stack:
        holdings = await open_holdings(site, lambda: service.job_manager, stack)
        service = await _service(site, holdings, stack)
        if configuration[BUILD_CLASS_ARCHIVE]:
            build = ArchiveBuild(java, place.directory)
            await stack.enter_async_context(building_class_archive(build, services, archive_delay))
        address = holdings.port.address
        process = TaskManagerProcess(address, f"{'http' if tls is None else 'https'}://{address}", service)
        try:
            yield process
        finally:
            if process.retiring:
                await _retire(service, holdings, configuration[CANCELLATION_TIMEOUT])
            else:
                await _leave(holdings)


async def _service(site: Site, holdings: Holdings, stack: contextlib.AsyncExitStack) -> TaskManagerService:
    """Start the service, its port included, and return it."""
    configuration, directory, gateway = site.configuration, site.directory, holdings.gateway
    cache, uploads = holdings.blobs.cache, holdings.blobs.uploads
    offload = Offload(CacheMessageBlobs(cache, uploads), site.system, minimum=configuration[OFFLOAD_MIN_SIZE])
    attempts = None if site.tls is None else AttemptCredentials(site.token)
    drivers = None if attempts is None else CalledDrivers(attempts)
    rpc = HttpRpcClient(site.token, offload, tls=site.client_tls, drivers=drivers)
    stack.push_async_callback(rpc.close)
    catalogue = TaskManagerLogs(directory, holdings.launcher.is_live)
    reader = LogReader(catalogue, site.system.clock.monotonic)
    stack.callback(reader.close)
    info = _info(site, holdings, "" if gateway is None else str(site.layout.checkpoints))
    await _announce(directory, info, holdings.port)
    meter = NodeMeter(holdings, directory.root)
    ports = TaskManagerPorts(
        rpc=rpc,
        launcher=holdings.launcher,
        store=SlotsFile(directory.slots_record),
        usage=meter.usage,
        logs=LogUploads(site.identity, info.instance, reader, uploads, site.system.clock),
        listeners=() if gateway is None else (gateway.upkeep,),
        local_state=gateway,
    )
    service = TaskManagerService(site.system, configuration, info, ports, _job_manager(configuration))
    _watch_memory(site, holdings, lambda: service.executor.table.state, meter)
    holdings.launcher.standbys.free_mb = lambda: service.executor.table.state.free.memory_mb
    policy = AccessPolicy(site.token, hosts=frozenset({site.host}))
    if attempts is not None:
        daemons = frozenset({RPC_ROUTE, task_manager_blobs.ROUTE})
        policy = dataclasses.replace(policy, drivers=DriverAccess(attempts), daemons=daemons)
    answering: RpcService = service
    if is_highly_available(configuration):
        known = locate_by_zookeeper(configuration, site.token, site.services, stack)
        await tell_drivers(directory.leader_record, known, site.services)
        follow_leader(
            known,
            service.executor.link,
            rpc,
            site.services,
            is_informed=lambda: known.is_informed,
            others=service.job_masters,
        )
        answering = TellsLeader(known, service)
    app = web.Application()
    app.middlewares.append(logging_refusals())
    secure(app, policy)
    app.add_routes([*rpc_routes(answering, offload), *task_manager_blobs.routes(cache.serve)])
    server = await serve_http(app, holdings.port, None if site.tls is None else site.tls.server)
    stack.push_async_callback(server.close)
    site.services.start("ends of processes", holdings.launcher.run())
    site.services.start("task manager", service.run())
    site.services.start("standby processes", holdings.launcher.standbys.run())
    site.services.start("offloaded messages", offload.run())
    _keep_logs(site, holdings, service, rpc, catalogue, stack)
    return service


def _keep_logs(
    site: Site,
    holdings: Holdings,
    service: TaskManagerService,
    rpc: HttpRpcClient,
    catalogue: TaskManagerLogs,
    stack: contextlib.AsyncExitStack,
) -> None:
    """Start what copies the logs of jobs to the shared storage, bounds them while jobs run, and deletes old ones."""
    configuration, launcher, services = site.configuration, holdings.launcher, site.services
    link = service.executor.link
    shipping = log_shipping(site.system, configuration, link, rpc, catalogue, launcher.live_processes)
    if shipping is not None:
        stack.callback(shipping.close)
        services.start("copies of logs", shipping.run())
        service.on_emptied = shipping.send_all
    if most := configuration[LOG_OUTPUT_MAX_SIZE]:
        stored = end_of if shipping is None else shipping.stored
        services.start("size of output", LogBounds(catalogue, most, launcher.live_jobs, stored).run())
    logs = site.directory.logs / "jobs"
    retained, min_age = configuration[LOG_RETENTION], configuration[LOG_MIN_AGE]
    services.start("log retention", prune_logs(logs, retained, min_age, launcher.live_jobs))


def _watch_memory(site: Site, holdings: Holdings, table: Callable[[], TableState], meter: NodeMeter) -> None:
    def share_of(key: ProcessKey) -> Share:
        given = resources_of(key, table())
        if given is None:  # its slot was released in the meantime, so it ends soon
            return Share(1, None)
        return Share(given.cores, given.memory_mb if _limits_memory(site.configuration) else None)

    holdings.launcher.share_of = share_of
    guard = MemoryGuard(site.configuration, holdings.launcher.memory, table, meter.available_mb)
    site.services.start("memory of processes", guard.run())


def _limits_memory(configuration: Configuration) -> bool:
    return MemoryLimit(configuration[MEMORY_LIMIT]) is MemoryLimit.ALWAYS


def _job_manager(configuration: Configuration) -> str:
    """Return the address at which the task manager first registers, "host:port"."""
    return configuration[JOB_MANAGER_ADDRESS] or join_host_port(configuration[REST_ADDRESS], configuration[REST_PORT])


async def _retire(service: TaskManagerService, holdings: Holdings, grace: float) -> None:
    try:
        async with asyncio.timeout(grace + _SHUTDOWN_MARGIN):
            await service.shutdown(grace)
    except (TimeoutError, EmberkeepError) as error:
        log.error("the orderly shutdown failed; killing all drivers and executors", reason=str(error))
    await holdings.launcher.standbys.leave()
    await holdings.launcher.kill_all()
    if holdings.gateway is not None:
        await asyncio.to_thread(holdings.gateway.clear)


async def _leave(holdings: Holdings) -> None:
    log.info("drivers and executors continue; the next task manager process here takes them over")
    await holdings.launcher.leave()
    await holdings.libraries.leave()
    await holdings.blobs.cache.leave()


async def _announce(directory: WorkingDirectory, info: TaskManagerInfo, port: BoundPort) -> None:
    """Record this process for the drivers here and for the next task manager process."""
    life = AgentLife(instance=info.instance, process=own_identity(), port=port.port)
    await asyncio.to_thread(write_agent_life, directory.agent_record, life)


def _info(site: Site, holdings: Holdings, checkpoints: str) -> TaskManagerInfo:
    configuration = site.configuration
    memory = configuration[MEMORY] or int(psutil.virtual_memory().total * _MEMORY_SHARE)
    cores = offered_cores(configuration)
    return TaskManagerInfo(
        id=site.identity,
        instance=InstanceId(site.system.ids.hex32()),
        address=holdings.port.address,
        host=site.host,
        node_id=configuration[TASK_MANAGER_NODE] or site.host,
        pid=os.getpid(),
        slots=configuration[SLOTS],
        driver_places=configuration[DRIVER_PLACES],
        total=ResourceProfile(cores=cores, memory_mb=memory // _MIB, custom=amounts_of(site.addresses)),
        runtime=RuntimeVersions(python=f"{sys.version_info.major}.{sys.version_info.minor}", spark=spark_version()),
        java_major=site.java.major,
        started_ms=site.system.clock.now_ms(),
        checkpoints=checkpoints,
        release=__version__,
        addresses=site.addresses,
        cgroups=holdings.cgroups.in_force(limits_memory=_limits_memory(configuration)),
    )
