"""What a task manager keeps on its node while it runs: its port, BLOBs, libraries, local state and processes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shutil
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import structlog

from emberkeep.adapters.blobs.client import BlobThreads
from emberkeep.adapters.cgroups.opening import OpenedGroups, open_groups
from emberkeep.adapters.cgroups.registry import ProcessGroups
from emberkeep.adapters.http.server import BoundPort, bind_port
from emberkeep.adapters.processes.supervisor import ProcessSupervisor
from emberkeep.base.configuration.layout import StateLayout, WorkingDirectory
from emberkeep.base.configuration.options.blobs import BLOB_DIRECTORY, BLOB_RETENTION
from emberkeep.base.configuration.options.standbys import STANDBY_DRIVERS, STANDBY_EXECUTORS
from emberkeep.base.configuration.options.task_managers import (
    CGROUPS,
    CORES,
    SLOTS,
    TASK_MANAGER_BIND_HOST,
    TASK_MANAGER_BIND_PORT,
    TASK_MANAGER_HOST,
    TASK_MANAGER_PORT,
)
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal
from emberkeep.base.ids import TaskManagerId
from emberkeep.base.processes.os_user import OsUser
from emberkeep.base.system import System
from emberkeep.base.tls.links import TlsLinks
from emberkeep.blobs.ports import BlobAccess
from emberkeep.daemons.blob_caching import BlobLink, BlobPlaces, blob_link
from emberkeep.daemons.process_main import Services
from emberkeep.daemons.records.agent_files import AgentLife, read_agent_life
from emberkeep.daemons.taskmanager.launching.launcher import ProcessLauncher
from emberkeep.daemons.taskmanager.launching.starts import LaunchNode
from emberkeep.daemons.taskmanager.run_as import JobUsers
from emberkeep.daemons.taskmanager.state_gateways import StateGatewayLink, durable_states, state_gateway_link
from emberkeep.daemons.taskmanager.working_place import WorkingPlace
from emberkeep.slots.custom.addresses import ResourceAddresses
from emberkeep.slots.standbys.events import DEFAULT_HEAP_MB, StandbyKind, StandbyProfile
from emberkeep.slots.standbys.machine import StandbyPool
from emberkeep.spark.java import JavaRuntime
from emberkeep.taskmanager.libraries.archives import UnpackedArchives
from emberkeep.taskmanager.libraries.cache import LibraryCache
from emberkeep.taskmanager.ports import NodeUsage

log = structlog.get_logger(__name__)
_MIB = 1024**2


@dataclass(frozen=True)
class Site:
    """The place and identity of a task manager, with its settings."""

    system: System
    configuration: Configuration
    layout: StateLayout
    services: Services
    place: WorkingPlace
    java: JavaRuntime
    token: str
    tls: TlsLinks | None
    users: Mapping[str, OsUser]  # of jobs, by namespace
    addresses: tuple[ResourceAddresses, ...] = ()  # of the node's custom resources

    @property
    def client_tls(self) -> ssl.SSLContext | None:
        return None if self.tls is None else self.tls.client

    @property
    def host(self) -> str:
        """Where other processes reach this node."""
        return self.configuration[TASK_MANAGER_HOST]

    @property
    def bind_host(self) -> str:
        return bind_host(self.configuration)

    @property
    def identity(self) -> TaskManagerId:
        return self.place.task_manager

    @property
    def directory(self) -> WorkingDirectory:
        return self.place.directory


@dataclass(frozen=True)
class Holdings:
    """The things that a task manager keeps on its node: a port, BLOBs, unpacked libraries, local state, processes."""

    port: BoundPort
    blobs: BlobLink
    libraries: LibraryCache
    gateway: StateGatewayLink | None
    launcher: ProcessLauncher
    cgroups: OpenedGroups


async def open_holdings(site: Site, server: Callable[[], str | None], stack: contextlib.AsyncExitStack) -> Holdings:
    """Open what the task manager keeps on its node. ``server`` returns the current address of the BLOB server."""
    configuration, directory = site.configuration, site.directory
    cgroups = await asyncio.to_thread(open_groups, configuration[CGROUPS], directory.root, offered_cores(configuration))
    supervisor = _supervisor(directory, site.services, stack, cgroups.groups)
    earlier = await asyncio.to_thread(read_agent_life, directory.agent_record)
    port = _bind(site, earlier)
    stack.callback(port.close)
    places = BlobPlaces(
        Path(configuration[BLOB_DIRECTORY] or directory.blobs),
        site.layout.ha_blobs,
        server=server,
        own_address=port.address,
    )
    blobs = await stack.enter_async_context(
        blob_link(site.system, configuration, places, BlobThreads(site.token, tls=site.client_tls), site.services)
    )
    libraries = await _libraries(blobs.cache, site, stack)
    users = JobUsers(site.users, site.token)
    states = durable_states(configuration, site.layout, directory, users)
    gateway = await stack.enter_async_context(
        state_gateway_link(site.system, configuration, site.place, site.layout, site.services, states)
    )
    files = None if site.tls is None else site.tls.files
    node = LaunchNode(
        site.identity,
        site.host,
        directory,
        site.layout.token_file,
        site.java,
        configuration,
        files,
        users,
        site.bind_host,
        site.layout,
    )
    return Holdings(
        port,
        blobs,
        libraries,
        gateway,
        ProcessLauncher(
            node,
            supervisor,
            libraries,
            gateway,
            _standby_pool(configuration),
            follow=None if gateway is None else gateway.follow,
        ),
        cgroups,
    )


def _bind(site: Site, earlier: AgentLife | None) -> BoundPort:
    """Bind the configured port. For port 0, try the previous process's port first: JobMasters know it. Raises Fatal."""
    configured = site.configuration[TASK_MANAGER_PORT]
    bind = functools.partial(bind_port, site.bind_host, announced=site.host)
    if port := site.configuration[TASK_MANAGER_BIND_PORT]:
        return bind(port, announced_port=configured, port_option=TASK_MANAGER_BIND_PORT.key)
    bind = functools.partial(bind, port_option=TASK_MANAGER_PORT.key)
    if configured == 0 and earlier is not None:
        try:
            return bind(earlier.port)
        except Fatal as error:
            log.warning(
                "the port of the previous task manager process is unavailable; JobMasters will learn of another port",
                reason=str(error),
            )
    return bind(configured)


def bind_host(configuration: Configuration) -> str:
    """Return the address that a task manager, its drivers and its executors bind."""
    return configuration[TASK_MANAGER_BIND_HOST] or configuration[TASK_MANAGER_HOST]


async def _libraries(blobs: BlobAccess, site: Site, stack: contextlib.AsyncExitStack) -> LibraryCache:
    directory = site.directory
    libraries = LibraryCache(
        blobs,
        UnpackedArchives(directory.unpacked),
        retention=site.configuration[BLOB_RETENTION],
        of_users={
            user: UnpackedArchives(directory.unpacked_for(user.name), user=user) for user in set(site.users.values())
        },
    )
    await libraries.start()
    stack.push_async_callback(libraries.close)
    site.services.start("library cache", libraries.run())
    return libraries


def _supervisor(
    directory: WorkingDirectory, services: Services, stack: contextlib.AsyncExitStack, groups: ProcessGroups
) -> ProcessSupervisor:
    supervisor = ProcessSupervisor(directory.processes, groups=groups)
    watching = asyncio.create_task(supervisor.run(), name="process supervisor")

    async def end() -> None:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await supervisor.close()

    stack.push_async_callback(end)
    services.watch(watching)
    return supervisor


def _standby_pool(configuration: Configuration) -> StandbyPool:
    sizes = {
        StandbyKind.DRIVER: configuration[STANDBY_DRIVERS],
        StandbyKind.EXECUTOR: configuration[STANDBY_EXECUTORS],
    }
    defaults = {kind: StandbyProfile(kind, DEFAULT_HEAP_MB) for kind in sizes}
    return StandbyPool(sizes, defaults, configuration[SLOTS])


def offered_cores(configuration: Configuration) -> int:
    """Return how many cores the task manager has for executors."""
    return configuration[CORES] or os.cpu_count() or 1


class NodeMeter:
    """Measures what a node uses. The last numbers count while none can be read, for example for want of descriptors.

    Raises OSError if the first ones cannot be read.
    """

    def __init__(self, holdings: Holdings, directory: Path) -> None:
        self._holdings = holdings
        self._directory = directory
        self._memory, self._disk, self._cpu = (
            psutil.virtual_memory(),
            shutil.disk_usage(directory),
            psutil.cpu_percent(),
        )
        self._is_current = True

    def usage(self) -> NodeUsage:
        """Return what the node uses now."""
        with self._noting_failures():
            self._memory = psutil.virtual_memory()
            self._disk = shutil.disk_usage(self._directory)
            self._cpu = psutil.cpu_percent()
        memory, disk, holdings = self._memory, self._disk, self._holdings
        gateway = holdings.gateway
        ports = (holdings.port,) if gateway is None else (holdings.port, gateway.port)
        return NodeUsage(
            disk_free_mb=disk.free // _MIB,
            disk_total_mb=disk.total // _MIB,
            memory_used_mb=(memory.total - memory.available) // _MIB,
            memory_total_mb=memory.total // _MIB,
            cpu_percent=self._cpu,
            blobs=holdings.blobs.cache.report(),
            local_state=() if gateway is None else gateway.upkeep.jobs,
            state_gateway=None if gateway is None else gateway.upkeep.report(),
            connections_rejected=sum(sum(port.connections.rejections().values()) for port in ports),
            standbys=holdings.launcher.standbys.report(),
            reserved_standbys=holdings.launcher.standbys.report_reserved(),
        )

    def available_mb(self) -> int:
        """Return the MiB that the machine can still give to processes."""
        with self._noting_failures():
            self._memory = psutil.virtual_memory()
        return int(self._memory.available) // _MIB

    @contextlib.contextmanager
    def _noting_failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if self._is_current:
                log.warning("cannot measure what this node uses, going on with the last numbers", reason=str(error))
            self._is_current = False
        else:
            self._is_current = True
