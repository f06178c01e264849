"""A task manager without processes: the drivers that it is asked for are JobMasters in here, and slots stay empty.

They talk to the JobManager over HTTP as real ones do, by the same links, and follow the leader by the same means.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from emberkeep.adapters.http.rpc import HttpRpcClient
from emberkeep.adapters.http.rpc_server import rpc_routes
from emberkeep.adapters.http.server import bind_port, serve_http
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Conflict, InvalidInput
from emberkeep.base.ids import AllocationId, InstanceId, JobId, TaskManagerId
from emberkeep.base.system import real_system
from emberkeep.daemons.leader_following import follow_leader, locate_by_zookeeper
from emberkeep.daemons.process_main import Services
from emberkeep.jobmaster import job_manager_link as jobmaster_link
from emberkeep.jobmaster.identity import Identity
from emberkeep.protocol.messages.job_master_reports import JobMasterStatus
from emberkeep.protocol.messages.job_masters import JobMasterReply, ReportNow
from emberkeep.protocol.messages.logs import ListLogs, LogsListed
from emberkeep.protocol.messages.root import Ack, Message
from emberkeep.protocol.messages.task_manager_reports import DriverReport, ProcessState, TaskManagerReport
from emberkeep.protocol.messages.task_managers import AllocateSlot, AttemptKey, StartDriver
from emberkeep.slots.model import Allocation, ResourceProfile, RuntimeVersions, SlotRequirement, TaskManagerInfo
from emberkeep.spark.distribution import spark_version
from emberkeep.taskmanager import job_manager_link as taskmanager_link

_HOST = "127.0.0.1"
_MEMORY_PER_DRIVER = 4096  # MiB: more than any needs
_SLOT = ResourceProfile(cores=1, memory_mb=1408)


@dataclass(frozen=True)
class StubShape:
    """What a task manager offers, and how many slots each driver on it asks for."""

    name: str = "stub"
    places: int = 1
    slots: int = 1
    wanted: int = 0


class StubNode:
    """RpcService and owner of a task manager's link. ``starts``: drivers that were asked for."""

    def __init__(
        self,
        configuration: Configuration,
        rpc: HttpRpcClient,
        address: str,
        leader: str,
        shape: StubShape,
        accepted: Counter[JobId],
    ) -> None:
        self.starts = 0
        self._accepted = accepted
        self._wanted = shape.wanted
        self._allocations: dict[AllocationId, Allocation] = {}
        self._system = real_system()
        self._rpc = rpc
        self.job_manager = leader
        self.on_silence: Callable[[], None] = lambda: None
        self._configuration = configuration
        self._info = _info(address, shape)
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
        if isinstance(request, StartDriver):
            return self._start(request)
        if isinstance(request, AllocateSlot):
            return self._allocate(request)
        if isinstance(request, ReportNow) and request.job_id in self._drivers:
            self._drivers[request.job_id][1].link.wake()
            return Ack()
        if isinstance(request, ListLogs):
            return LogsListed(logs=())
        raise InvalidInput(f"this task manager has no processes and refuses {type(request).__name__}")

    def _allocate(self, request: AllocateSlot) -> Message:
        self._link.wake()
        if request.allocation_id in self._allocations:
            return Ack()  # the leader repeats the request after a lost reply
        if self._accepted[request.job_id] == self._wanted:
            return Ack()  # its JobMaster would return the slot: the leader does not know yet what it holds elsewhere
        taken = {each.slot_index for each in self._allocations.values()}
        index = next((index for index in range(self._info.slots) if index not in taken), None)
        if index is None:
            raise Conflict("no slot is free")
        self._accepted[request.job_id] += 1
        self._allocations[request.allocation_id] = Allocation(
            id=request.allocation_id,
            slot_index=index,
            job_id=request.job_id,
            attempt=request.attempt,
            profile=request.profile,
            job_master=request.job_master,
        )
        return Ack()

    def _start(self, request: StartDriver) -> Message:
        self.starts += 1
        graph = request.graph
        identity = Identity(
            job_id=graph.job_id,
            attempt=request.attempt,
            address=self._info.address,
            task_manager=self._info.id,
            pid=os.getpid(),
        )
        wanted = SlotRequirement(count=self._wanted, profile=_SLOT, runtime=self._info.runtime)
        job_master = _StubJobMaster((wanted,) if self._wanted else ())
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
        return not self._drivers and not self._allocations

    async def take_report(self) -> TaskManagerReport:
        self._sequence += 1
        drivers = tuple(report for report, _ in self._drivers.values())
        held = tuple(self._allocations.values())
        return TaskManagerReport(sequence=self._sequence, allocations=held, drivers=drivers)

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

    def __init__(self, requirements: tuple[SlotRequirement, ...]) -> None:
        self._sequence = 0
        self._requirements = requirements

    async def take_status(self) -> JobMasterStatus:
        self._sequence += 1
        return JobMasterStatus(sequence=self._sequence, requirements=self._requirements, executors=())

    async def take_reply(self, reply: JobMasterReply) -> None:
        pass

    async def take_refusal(self, message: str) -> None:
        raise SystemExit(f"the JobManager ends a running job ({message}): a bug, so there is no measurement")


@asynccontextmanager
async def stub_node(configuration: Configuration, token: str, leader: str, places: int) -> AsyncIterator[StubNode]:
    """One that has registered, or is about to. ``leader``: the address of the JobManager that leads now."""
    async with stub_nodes(configuration, token, leader, (StubShape(places=places),)) as (node,):
        yield node


@asynccontextmanager
async def stub_nodes(
    configuration: Configuration,
    token: str,
    leader: str,
    shapes: Sequence[StubShape],
    accepted: Counter[JobId] | None = None,
) -> AsyncIterator[list[StubNode]]:
    """Several of them that share one session of ZooKeeper, which allows few from one address.

    ``accepted``: the slots that each job holds on all nodes of this process.
    """
    accepted = Counter() if accepted is None else accepted
    async with AsyncExitStack() as stack:
        services = Services()
        stack.push_async_callback(services.cancel)
        known = locate_by_zookeeper(configuration, token, services, stack)
        nodes = []
        for shape in shapes:
            # As many connections as there would be processes.
            rpc = HttpRpcClient(token, connections_per_peer=shape.places + 1)
            stack.push_async_callback(rpc.close)
            port = bind_port(_HOST, 0)
            node = StubNode(configuration, rpc, port.address, leader, shape, accepted)
            app = web.Application()
            app.add_routes(rpc_routes(node))
            server = await serve_http(app, port)
            stack.push_async_callback(server.close)
            follow_leader(known, node, rpc, services, is_informed=lambda: known.is_informed)
            node.start()
            stack.push_async_callback(node.stop)
            nodes.append(node)
        yield nodes


def _info(address: str, shape: StubShape) -> TaskManagerInfo:
    cores = shape.places + shape.slots
    return TaskManagerInfo(
        id=TaskManagerId(f"tm-{shape.name}"),
        instance=InstanceId(secrets.token_hex(16)),
        address=address,
        host=_HOST,
        node_id=shape.name,
        pid=os.getpid(),
        slots=shape.slots,
        driver_places=shape.places,
        total=ResourceProfile(cores=cores, memory_mb=cores * _MEMORY_PER_DRIVER),
        runtime=RuntimeVersions(python=f"{sys.version_info.major}.{sys.version_info.minor}", spark=spark_version()),
        java_major=17,
        started_ms=int(time.time() * 1000),
    )
