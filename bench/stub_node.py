"""A task manager without processes: the drivers that it is asked for are JobMasters in here, which need no executors.

They talk to the JobManager over HTTP as real ones do, by the same links, and follow the leader by the same means.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp import web

from emberkeep.adapters.http.rpc import HttpRpcClient
from emberkeep.adapters.http.rpc_server import rpc_routes
from emberkeep.adapters.http.server import bind_port, serve_http
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import InstanceId, JobId, TaskManagerId
from emberkeep.base.system import real_system
from emberkeep.daemons.leader_following import follow_leader, locate_by_zookeeper
from emberkeep.daemons.process_main import Services
from emberkeep.jobmaster import job_manager_link as jobmaster_link
from emberkeep.jobmaster.identity import Identity
from emberkeep.protocol.messages import (
    Ack,
    AttemptKey,
    DriverReport,
    JobMasterReply,
    JobMasterStatus,
    Message,
    ProcessState,
    StartDriver,
    TaskManagerReport,
)
from emberkeep.slots.model import ResourceProfile, RuntimeVersions, TaskManagerInfo
from emberkeep.spark.distribution import spark_version
from emberkeep.taskmanager import job_manager_link as taskmanager_link

_HOST = "127.0.0.1"
_MEMORY_PER_DRIVER = 4096  # MiB: more than any needs


class StubNode:
    """RpcService and owner of a task manager's link. ``starts``: drivers that were asked for."""

    def __init__(
        self, configuration: Configuration, rpc: HttpRpcClient, address: str, leader: str, places: int
    ) -> None:
        self.starts = 0
        self._system = real_system()
        self._rpc = rpc
        self.job_manager = leader
        self.on_silence: Callable[[], None] = lambda: None
        self._configuration = configuration
        self._info = _info(address, places)
        self._drivers: dict[JobId, tuple[DriverReport, _StubJobMaster]] = {}
        self._services = Services()
        self._sequence = 0
        self._link = taskmanager_link.JobManagerLink(self._system, configuration, rpc, self._info, self, leader)

    def start(self) -> None:
        self._services.start("task manager", self._link.run())

    async def stop(self) -> None:
        await self._services.cancel()

    def follow(self, leader: str) -> None:
        """Another JobManager leads now."""
        self.job_manager = leader
        self._link.follow(leader)
        for _, job_master in self._drivers.values():
            job_master.link.follow(leader)

    # --- RpcService ---------------------------------------------------------------------------------------------------

    async def serve(self, request: Message) -> Message:
        if not isinstance(request, StartDriver):
            raise InvalidInput(f"this task manager runs drivers only and refuses {type(request).__name__}")
        self.starts += 1
        graph = request.graph
        identity = Identity(
            job_id=graph.job_id,
            attempt=request.attempt,
            address=self._info.address,
            task_manager=self._info.id,
            pid=os.getpid(),
        )
        job_master = _StubJobMaster()
        job_master.link = jobmaster_link.JobManagerLink(
            self._system, self._configuration, self._rpc, identity, job_master, self.job_manager
        )
        report = DriverReport(
            job_id=graph.job_id,
            attempt=request.attempt,
            state=ProcessState.RUNNING,
            pid=identity.pid,
            memory_mb=request.memory_mb,
        )
        self._drivers[graph.job_id] = report, job_master
        self._services.start(f"JobMaster of {graph.job_id}", job_master.link.run())
        self._link.wake()
        return Ack()

    # --- owner of the link --------------------------------------------------------------------------------------------

    @property
    def holds_nothing(self) -> bool:
        return not self._drivers

    async def take_report(self) -> TaskManagerReport:
        self._sequence += 1
        drivers = tuple(report for report, _ in self._drivers.values())
        return TaskManagerReport(sequence=self._sequence, allocations=(), drivers=drivers)

    def followed_lineage(self) -> str:
        return ""

    def followed_epoch(self) -> int:
        return 0

    def attempts_seen(self) -> tuple[AttemptKey, ...]:
        return ()

    async def take_reply(self, reply: taskmanager_link.JobManagerReply) -> None:
        pass


class _StubJobMaster:
    """Owner of a JobMaster's link: there is nothing to do, and it never ends."""

    link: jobmaster_link.JobManagerLink

    def __init__(self) -> None:
        self._sequence = 0

    async def take_status(self) -> JobMasterStatus:
        self._sequence += 1
        return JobMasterStatus(sequence=self._sequence, requirements=(), executors=())

    async def take_reply(self, reply: JobMasterReply) -> None:
        pass

    async def take_refusal(self, message: str) -> None:
        raise SystemExit(f"the JobManager ends a running job ({message}): a bug, so there is no measurement")


@asynccontextmanager
async def stub_node(configuration: Configuration, token: str, leader: str, places: int) -> AsyncIterator[StubNode]:
    """One that has registered, or is about to. ``leader``: the address of the JobManager that leads now."""
    async with AsyncExitStack() as stack:
        rpc = HttpRpcClient(token, connections_per_peer=places + 1)  # as many as there would be processes
        stack.push_async_callback(rpc.close)
        port = bind_port(_HOST, 0)
        node = StubNode(configuration, rpc, port.address, leader, places)
        app = web.Application()
        app.add_routes(rpc_routes(node))
        server = await serve_http(app, port)
        stack.push_async_callback(server.close)
        services = Services()
        stack.push_async_callback(services.cancel)
        known = locate_by_zookeeper(configuration, token, services, stack)
        follow_leader(known, node, rpc, services, is_informed=lambda: known.is_informed)
        node.start()
        stack.push_async_callback(node.stop)
        yield node


def _info(address: str, places: int) -> TaskManagerInfo:
    return TaskManagerInfo(
        id=TaskManagerId("tm-stub"),
        instance=InstanceId(secrets.token_hex(16)),
        address=address,
        host=_HOST,
        node_id="stub",
        pid=os.getpid(),
        slots=1,
        driver_places=places,
        total=ResourceProfile(cores=places, memory_mb=(places + 1) * _MEMORY_PER_DRIVER),
        runtime=RuntimeVersions(python=f"{sys.version_info.major}.{sys.version_info.minor}", spark=spark_version()),
        java_major=17,
        started_ms=int(time.time() * 1000),
    )
