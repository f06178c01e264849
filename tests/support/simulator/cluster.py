"""A simulated cluster: the real actors in simulated processes on simulated machines, and its clients' requests."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import msgspec

from emberkeep.base.configuration.options.blobs import BLOB_RETENTION
from emberkeep.base.configuration.options.jobs import CANCELLATION_TIMEOUT
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Conflict, EmberkeepError, InvalidInput, RetryLater, UnknownOutcome
from emberkeep.base.ids import InstanceId, JobId, TaskManagerId
from emberkeep.base.system import System
from emberkeep.blocklist.errors import NotBlocked
from emberkeep.blocklist.model import Place
from emberkeep.jobmanager.blobs.server import BlobServer
from emberkeep.jobmanager.service import JobManagerService
from emberkeep.jobmanager.surroundings import Surroundings
from emberkeep.jobmanager.views.cluster import Submission
from emberkeep.jobmanager.views.upgrades import UpgradeWish
from emberkeep.jobs.model import EntryPoint, EntryPointKind, JobGraph, JobResources
from emberkeep.lifecycle.model import Procedure, ProcedureRequest
from emberkeep.protocol.messages.root import Message
from emberkeep.slots.custom.addresses import ResourceAddresses
from emberkeep.slots.custom.amounts import amounts
from emberkeep.slots.model import ResourceProfile, TaskManagerInfo
from emberkeep.slots.standbys.events import StandbyKind
from emberkeep.taskmanager.ports import NodeUsage, TaskManagerPorts
from emberkeep.taskmanager.service import TaskManagerService
from tests.support.agent_store import MemoryAgentStore
from tests.support.chronicle.memory import MemoryChronicle, Streams
from tests.support.savepoints.memory_savepoints import MemorySavepoints
from tests.support.simulator.blobs import JM_PROCESS, SimBlobs, Uploading, artefact_of, receive
from tests.support.simulator.blocklist import BlockCall, SimBlocklist, WatchedRpc
from tests.support.simulator.history import History
from tests.support.simulator.job_store import SimStore
from tests.support.simulator.launcher import LaunchRoom, SimLauncher
from tests.support.simulator.machines import Machine, Machines, Process
from tests.support.simulator.network import Handler, SimNetwork, rpc_handler
from tests.support.simulator.releases.first_release import FirstReleaseRecord
from tests.support.simulator.scripts import RUNTIME, Script, SimSpark, Truth
from tests.support.simulator.standbys import StandbyRoom
from tests.support.simulator.storage import shared_storage
from tests.support.simulator.storage.shared_storage import SimStorage
from tests.support.simulator.supply import SimDriver
from tests.support.simulator.virtual_loop import VirtualClock, VirtualLoop, seeded_random, seeded_system

JM_NODE, JM_HOST, JM_PORT = "node-jm", "10.0.0.1", 8081
CLIENT_NODE, CLIENT_HOST = "node-client", "10.0.0.2"
OTHER_NODE, OTHER_HOST = "node-other", "10.0.0.3"
AGENT_PORT = 6122
DRIVER_MEMORY_MB = 512
CLIENT_TIMEOUT = 10.0
CLIENT_PAUSE = 1.0
CLIENT_AGAIN = 4.0
REFUSED_WITHIN = 5.0  # seconds
OF_CLIENTS = frozenset({"submit", "upload", "block", "unblock", "ask", "upgrade", "cancel-upgrade", "cancel"})

OPTIONS = {
    # An executor that hangs while it hands over its blocks is ended before the run must have settled.
    "blocklist.evacuation.timeout": "60s",
    "slotmanager.preemption.timeout": "30s",
    # Half of the defaults, in the same proportions, so that more happens in a virtual second.
    "heartbeat.interval": "1500ms",
    "heartbeat.timeout": "5s",
    "rpc.ask.timeout": "5s",
    "taskmanager.slot.timeout": "5s",
    "taskmanager.orphan-timeout": "60s",
    "job.driver.lease-timeout": "10s",
    "job.driver.start-timeout": "20s",
    "task.cancellation.timeout": "4s",
    "slot.request.timeout": "300s",
    "restart-strategy.exponential-delay.initial-backoff": "1s",
    "restart-strategy.exponential-delay.max-backoff": "5s",
    "restart-strategy.exponential-delay.attempts-before-reset-backoff": "8",
    "executor.max-failures": "6",
    "executor.backoff.max": "5s",
    "blob.retention.interval": "20s",
}


@dataclass(frozen=True)
class ClusterPlan:
    """Configuration of a cluster. All task managers are alike."""

    seed: str
    task_managers: int = 3
    slots: int = 3
    driver_places: int = 4
    cores: int = 6
    memory_mb: int = 12_000
    gpus: int = 0
    options: dict[str, str] = field(default_factory=dict)
    driver_options: dict[str, str] = field(default_factory=dict)  # what drivers know otherwise than the leader
    clinging_executors: bool = False
    slow_starts: float = 0.0
    slow_ends: float = 0.0  # probability that a process takes seconds to end
    skews: bool = False  # wall clocks differ
    files: bool = True  # each job has a file, which its client uploads
    on_demand: bool = False  # the JobManager starts task managers itself
    only_agents: bool = False  # no faults of drivers, executors and the network: no work may be lost (P2)
    standby_drivers: int = 0  # kept by each task manager
    standby_executors: int = 0
    bad_imports: float = 0.0  # probability that the imports of a reserved standby end it, and that they hang
    only_standbys: bool = False  # nothing but standby processes fails: no attempt may be lost (r)
    owned_storage: bool = False  # the storage has ownership records, and a keeper that deletes what no job needs
    first_release: tuple[str, ...] = ()  # machines whose processes are of release 0.1.0, until they are upgraded


@dataclass(eq=False)
class TaskManagerNode:
    """A machine and its task manager, whose process may be down. ``record`` is on the machine's disk."""

    id: TaskManagerId
    machine: Machine
    record: MemoryAgentStore = field(default_factory=MemoryAgentStore)  # on its disk
    agent: Process | None = None
    info: TaskManagerInfo | None = None
    service: TaskManagerService | None = None
    launcher: SimLauncher | None = None
    lives: int = 0


@dataclass(eq=False)
class SubmittedJob:
    """A job from the point of view of the client that submitted it."""

    name: str
    script: Script
    options: dict[str, str]
    submitted: bool = False
    job_id: JobId | None = None  # set when the submission was accepted
    rejected: str = ""
    cancel_wanted: bool = False
    cancel_answer: str = ""
    asked: ProcedureRequest | None = None  # the newest request for a savepoint or stop
    ask_answer: str = ""  # "done": accepted, so it must happen


class SimCluster:
    """A cluster in virtual time. Call ``start`` before anything else."""

    def __init__(self, loop: VirtualLoop, plan: ClusterPlan) -> None:
        self.loop = loop
        self.plan = plan
        self.history = History(loop)
        self.network = SimNetwork(loop, seeded_random(plan.seed, "network"), self.history)
        self.machines = Machines(loop, self.network, self.history)
        self.configuration = Configuration().with_texts({**OPTIONS, **plan.options}, "simulation")
        self.truth = Truth()
        self.sparks: dict[str, SimSpark] = {}
        self.store = SimStore(seeded_random(plan.seed, "store"), self.history)
        self.blobs = SimBlobs(plan.seed, self.store, self.history)
        self.storage = SimStorage(self._leaders_time, owned=plan.owned_storage)
        self.store.on_create.append(lambda job_id, _: self.storage.put(job_id))
        self.on_order: list[Callable[[Process, Message], None]] = []  # called for JobManagers' requests
        self.on_supply: list[Callable[[Process, str], None]] = []  # called when it starts or ends a task manager itself
        self.jobs: list[SubmittedJob] = []
        self.jm_lives = 0
        self.streams: Streams = {}
        self.jm_process: Process | None = None
        self.jm_service: JobManagerService | None = None
        self._skew = seeded_random(plan.seed, "skew")
        self._ids = seeded_random(plan.seed, "clients")
        self.supply = SimDriver(self) if plan.on_demand else None
        self.jm_machine = self.machines.add(JM_NODE, JM_HOST, self._clock())
        client_machine = self.machines.add(CLIENT_NODE, CLIENT_HOST, self._clock())
        self.client = self.machines.start(client_machine, "client")
        self.jm_address = f"{JM_HOST}:{JM_PORT}"
        self.blocklist = SimBlocklist(self.network, self.history, self.client, self.jm_address, self.jm_machine)
        self.nodes = [self._node(number) for number in range(1, plan.task_managers + 1)]
        for name in plan.first_release:
            if name in self.machines.machines:  # a world that was made smaller has fewer
                self.machines.machines[name].old = True
        self.room = LaunchRoom(
            self.machines,
            self.configuration.with_texts(plan.driver_options, "drivers"),
            self.truth,
            self.sparks,
            plan.seed,
            plan.clinging_executors,
            plan.slow_starts,
            plan.slow_ends,
            StandbyRoom(
                self.machines,
                plan.seed,
                {StandbyKind.DRIVER: plan.standby_drivers, StandbyKind.EXECUTOR: plan.standby_executors},
                plan.slots,
                contextvars.Context(),
                plan.bad_imports,
            ),
        )

    def _leaders_time(self) -> int:
        return self.jm_machine.clock.now_ms()

    def _clock(self) -> VirtualClock:
        skew = self._skew.randint(-30_000, 30_000) if self.plan.skews else 0
        return VirtualClock(self.loop, skew_ms=skew, monotonic_start=self._skew.uniform(0.0, 1e6))

    def _node(self, number: int) -> TaskManagerNode:
        machine = self.machines.add(f"node-{number}", f"10.0.1.{number}", self._clock())
        return TaskManagerNode(TaskManagerId(f"tm-{number}"), machine)

    # --- starting processes -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the JobManager and, unless it starts them on demand, all task managers."""
        self.start_job_manager()
        for node in [] if self.plan.on_demand else self.nodes:
            self.start_agent(node)

    def start_job_manager(self) -> None:
        """Start a JobManager process over the same store, unless one is running."""
        if self.jm_process is not None and self.jm_process.alive:
            return
        self.jm_lives += 1
        process = self.machines.start(self.jm_machine, JM_PROCESS)
        system = seeded_system(self.jm_machine.clock, self.plan.seed, f"jobmanager#{self.jm_lives}")
        store = self.store.session(process)
        storage = self.storage.settle(store.lineage)
        blobs = self.blobs.server(self.configuration, store.confirm)
        service = JobManagerService(
            system, self.configuration, self._surroundings(process, self.jm_address, system), store, blobs
        )
        self.jm_process, self.jm_service = process, service
        self.network.listen(self.jm_address, process.party, _job_manager_handler(service, blobs, self.store))
        self._run(process, service.run())
        self._run(process, self.blobs.keep(blobs, lambda: storage is None or storage.problem() is None))
        if storage is not None:
            self._run(process, shared_storage.keep(storage, store, service, system.clock.now_ms))

    def _surroundings(self, process: Process, address: str, system: System) -> Surroundings:
        return Surroundings(
            rpc=WatchedRpc(self.network.client(process.party), partial(self._ordered, process)),
            address=address,
            checkpoint_root="/checkpoints",
            savepoint_root="/savepoints",
            storage=self.storage,
            savepoints=MemorySavepoints(self.truth.delete_savepoint),
            chronicle=MemoryChronicle(self.streams, system.clock.now_ms),
            resource_driver=self.supply,
        )

    def start_intruder(self) -> None:
        """Start the JobManager of another cluster over the same job store, which has a leader: it must be refused."""
        machine = self.machines.machines.get(OTHER_NODE) or self.machines.add(OTHER_NODE, OTHER_HOST, self._clock())
        process = self.machines.start(machine, "another jobmanager")
        system = seeded_system(machine.clock, self.plan.seed, f"{process.name}#{process.pid}")
        store = self.store.session(process)
        surroundings = self._surroundings(process, f"{OTHER_HOST}:{JM_PORT}", system)
        blobs = self.blobs.server(self.configuration, store.confirm)
        service = JobManagerService(system, self.configuration, surroundings, store, blobs)

        def ended(done: asyncio.Task[None]) -> None:
            if not process.alive or done.cancelled():
                return
            self.history.judged("y")
            self.history.count("another cluster refused by the job store")
            if not isinstance(done.exception(), Conflict):
                self.history.violate("y", f"another cluster at the job store ends with {done.exception()!r}")
            self.machines.exit(process, 1)

        async def main() -> None:
            await service.run()

        process.party.scope.spawn(main(), "main").add_done_callback(ended)
        self.loop.call_later(REFUSED_WITHIN, self._check_intruder, process, context=contextvars.Context())

    def _check_intruder(self, process: Process) -> None:
        if process.alive:
            self.history.violate("y", "another cluster uses the job store, which has a leader")
            self.machines.kill(process)

    def kill_job_manager(self) -> None:
        """SIGKILL the JobManager process, which has been started."""
        assert self.jm_process is not None
        self.machines.kill(self.jm_process)

    def supplied(self, what: str) -> None:
        """Note that the JobManager is about to start or end a task manager through its resource driver."""
        assert self.jm_process is not None
        for told in self.on_supply:
            told(self.jm_process, what)

    def _ordered(self, process: Process, address: str, request: Message) -> None:
        for told in self.on_order:
            told(process, request)
        for node in self.nodes:
            if address == f"{node.machine.host}:{AGENT_PORT}":
                self.blocklist.ordered(node.machine.name, request)

    def _gpus(self) -> tuple[ResourceAddresses, ...]:
        numbers = tuple(str(number) for number in range(self.plan.gpus))
        return (ResourceAddresses(name="gpu", addresses=numbers),) if numbers else ()

    def start_agent(self, node: TaskManagerNode) -> None:
        """Start a task manager process, unless one is running or the machine is off."""
        if (node.agent is not None and node.agent.alive) or not node.machine.up:
            return
        node.lives += 1
        process = self.machines.start(node.machine, node.id)
        system = seeded_system(node.machine.clock, self.plan.seed, f"{node.id}#{node.lives}")
        address = f"{node.machine.host}:{AGENT_PORT}"
        info = TaskManagerInfo(
            id=node.id,
            instance=InstanceId(system.ids.hex32()),
            address=address,
            host=node.machine.host,
            node_id=node.machine.name,
            pid=process.pid,
            slots=self.plan.slots,
            driver_places=self.plan.driver_places,
            total=ResourceProfile(
                cores=self.plan.cores, memory_mb=self.plan.memory_mb, custom=amounts({"gpu": self.plan.gpus})
            ),
            addresses=self._gpus(),
            runtime=RUNTIME,
            java_major=17,
            started_ms=node.machine.clock.now_ms(),
        )
        launcher = SimLauncher(
            self.room, node.machine, process, seeded_random(self.plan.seed, f"{node.id}#{node.lives}/launcher")
        )
        ports = TaskManagerPorts(
            rpc=self.network.client(process.party),
            launcher=launcher,
            store=FirstReleaseRecord(node.record) if process.party.old else node.record,
            usage=lambda: NodeUsage(
                standbys=launcher.standbys.report(), reserved_standbys=launcher.standbys.report_reserved()
            ),
        )
        service = TaskManagerService(system, self.configuration, info, ports, self.jm_address)
        node.record.seconds = seeded_random(self.plan.seed, f"{node.id}#{node.lives}/disk").choice((0.001, 0.02, 0.2))
        launcher.standbys.free_mb = lambda: service.executor.table.state.free.memory_mb
        node.agent, node.info, node.service, node.launcher = process, info, service, launcher
        self.network.listen_rpc(address, process.party, service)
        self._run(process, service.run())
        if self.keeps_standbys:
            self._run(process, launcher.standbys.run())
        process.party.scope.spawn(self._retire(process, service, launcher), "retire")

    @property
    def keeps_standbys(self) -> bool:
        """True if task managers keep standby processes."""
        return any(self.room.standbys.sizes.values())

    async def _retire(self, process: Process, service: TaskManagerService, launcher: SimLauncher) -> None:
        """Wait until the JobManager has stopped a task manager permanently, then end its process."""
        await service.retired()
        await service.shutdown(self.configuration[CANCELLATION_TIMEOUT])
        await launcher.standbys.leave()
        self.machines.exit(process, 0)

    def leave_agent(self, node: TaskManagerNode) -> None:
        """End a task manager process in order, as for an upgrade. The processes of its jobs continue."""
        process, launcher = node.agent, node.launcher
        assert process is not None
        assert launcher is not None

        async def leave() -> None:
            await launcher.standbys.leave()
            self.machines.exit(process, 0)

        process.party.scope.spawn(leave(), "leave")

    def _run(self, process: Process, work: Awaitable[None]) -> None:
        async def main() -> None:
            await work

        task = process.party.scope.spawn(main(), "main")
        task.add_done_callback(lambda done: self._main_ended(process, done))

    def _main_ended(self, process: Process, done: asyncio.Task[None]) -> None:
        if not process.alive or done.cancelled():
            return
        error = done.exception()
        self.history.violate("bug", f"{process.name} died by itself: {error!r}{_where(error)}")
        self.machines.exit(process, 1)

    def close(self) -> None:
        """Remove what the cluster has on the real disk."""
        self.storage.close()

    # --- clients ------------------------------------------------------------------------------------------------------

    def submit(self, name: str, script: Script, options: dict[str, str] | None = None) -> SubmittedJob:
        """Submit a job from the client's machine, with retries until there is a reply."""
        job = SubmittedJob(name, script, options or {})
        self.jobs.append(job)
        self.client.party.scope.spawn(self._submit(job), f"submit {name}")
        return job

    async def _submit(self, job: SubmittedJob) -> None:
        graph = self.graph(job, self._new_id())
        while True:
            # A retry has a new job id, as from the REST API, or the same one: the idempotency key decides.
            if self._ids.random() < 0.5:
                graph = self.graph(job, self._new_id())
            job.submitted = True
            uploaded_at = self.loop.time()
            try:
                await self.upload(job, graph.job_id)
                data = await self.network.exchange(
                    self.client.party, self.jm_address, "submit", msgspec.msgpack.encode(graph), CLIENT_TIMEOUT
                )
            except (RetryLater, UnknownOutcome):
                await asyncio.sleep(CLIENT_PAUSE)
            except InvalidInput as error:
                # The upload was acknowledged later than that, so its BLOBs must exist for an interval (BLOB-6).
                if self.loop.time() - uploaded_at < self.configuration[BLOB_RETENTION]:
                    self.history.violate("h", f"{job.name} was uploaded, and is refused: {error}")
                    return
                self.history.count("submitted too late for its BLOBs")
            except EmberkeepError as error:
                job.rejected = str(error)
                self.history.add("client", f"submission of {job.name} rejected: {error}")
                return
            else:
                submission = msgspec.msgpack.decode(data, type=Submission)
                job.job_id = submission.job_id
                self.history.add("client", f"{job.name} accepted as {submission.job_id[:8]}")
                return

    async def upload(self, job: SubmittedJob, job_id: JobId) -> None:
        """Upload the job's file, if it has one. Raises RetryLater, UnknownOutcome."""
        if not self.plan.files:
            return
        uploading = msgspec.msgpack.encode(Uploading(job_id, (_content(job),)))
        try:
            await self.network.exchange(self.client.party, self.jm_address, "upload", uploading, CLIENT_TIMEOUT)
        except Conflict:
            # A job with this id has ended, so an earlier submission has succeeded; the next one will show it.
            self.history.count("upload refused: Conflict")

    def _new_id(self) -> JobId:
        return JobId(f"{self._ids.getrandbits(128):032x}")

    def cancel(self, job: SubmittedJob) -> None:
        """Cancel from the client's machine, with retries until a reply; an accepted cancellation must happen."""
        if not job.cancel_wanted:
            job.cancel_wanted = True
            self.client.party.scope.spawn(self._cancel(job), f"cancel {job.name}")

    async def _cancel(self, job: SubmittedJob) -> None:
        while job.job_id is None:
            if job.rejected:
                return
            await asyncio.sleep(CLIENT_PAUSE)
        while job.job_id not in self.store.recorded:
            try:
                await self.network.exchange(
                    self.client.party, self.jm_address, "cancel", job.job_id.encode(), CLIENT_TIMEOUT
                )
            except (RetryLater, UnknownOutcome):
                job.cancel_answer = "no answer"
            except EmberkeepError as error:
                job.cancel_answer = f"{type(error).__name__}: {error}"
            else:
                job.cancel_answer = "done"
            self.history.add("client", f"cancel of {job.name}: {job.cancel_answer}")
            if job.cancel_answer == "done":
                return
            if job.cancel_answer.startswith("Absent"):
                self.history.violate("a", f"{job.name} was accepted, and cannot be cancelled: {job.cancel_answer}")
            await asyncio.sleep(CLIENT_AGAIN)

    def ask(self, job: SubmittedJob, procedure: Procedure, seconds: float | None = None) -> ProcedureRequest:
        """Request a savepoint or stop from the client's machine, with retries under one trigger id until a reply.

        ``seconds``: time that running micro-batches may take; None: as configured.
        """
        now = self.client.machine.clock.now_ms()
        request = ProcedureRequest(
            trigger_id=self._new_id(),
            procedure=procedure,
            target_directory="/savepoints",
            requested_ms=now,
            deadline_ms=0 if seconds is None else now + int(seconds * 1000),
        )
        job.asked, job.ask_answer = request, ""
        self.client.party.scope.spawn(self._ask(job, request), f"ask {job.name}")
        return request

    async def _ask(self, job: SubmittedJob, request: ProcedureRequest) -> None:
        while job.job_id is None:
            if job.rejected:
                return
            await asyncio.sleep(CLIENT_PAUSE)
        data = msgspec.msgpack.encode((job.job_id, request))
        while True:
            try:
                await self.network.exchange(self.client.party, self.jm_address, "ask", data, CLIENT_TIMEOUT)
            except (RetryLater, UnknownOutcome):
                answer = "no answer"
            except EmberkeepError as error:
                answer = f"{type(error).__name__}: {error}"
            else:
                answer = "done"
            self.history.add("client", f"{request.procedure.value} of {job.name}: {answer}")
            if answer != "no answer":
                job.ask_answer = answer
                self.history.count(f"asked for a {request.procedure.value}: {answer.partition(':')[0]}")
                return
            await asyncio.sleep(CLIENT_AGAIN)

    def graph(self, job: SubmittedJob, job_id: JobId) -> JobGraph:
        """Return the graph of a job under this id."""
        script = job.script
        return JobGraph(
            job_id=job_id,
            name=job.name,
            entry_point=EntryPoint(kind=EntryPointKind.SCRIPT, name="script.py"),
            arguments=(msgspec.json.encode(script).decode(),),
            artefacts=(artefact_of(_content(job)),) if self.plan.files else (),
            spark_conf={},
            options=job.options
            | ({"job.priority": str(script.priority)} if script.priority else {})
            | ({"job.gang": "true"} if script.gang else {}),
            working_directory="/",
            resources=JobResources(
                driver_memory_mb=DRIVER_MEMORY_MB - 128,
                driver_overhead_mb=128,
                executors=script.executors,
                executor_cores=script.cores,
                executor_memory_mb=script.memory_mb * 3 // 4,
                executor_overhead_mb=script.memory_mb - script.memory_mb * 3 // 4,
                executor_resources={"gpu": script.gpus} if script.gpus else {},
            ),
            python=RUNTIME.python,
            namespace=script.namespace,
            submitted_ms=self.client.machine.clock.now_ms(),
            idempotency_key=f"key-{job.name}",
        )


def _content(job: SubmittedJob) -> bytes:
    return f"the script of {job.name}".encode()


def _job_manager_handler(service: JobManagerService, blobs: BlobServer, store: SimStore) -> Handler:
    """Return the handler of RPCs and of the calls that the REST API would make.

    While the job store is lost, an operator keeps clients away.
    """
    rpc = rpc_handler(service)

    async def handle(operation: str, data: bytes) -> bytes:
        if store.own is not None and operation in OF_CLIENTS:
            raise RetryLater("the cluster is closed until its job store is back")
        if operation == "submit":
            return msgspec.msgpack.encode(await service.gateway.submit(msgspec.msgpack.decode(data, type=JobGraph)))
        if operation == "upload":
            await receive(blobs, data)
            return b""
        if operation == "block":
            call = msgspec.msgpack.decode(data, type=BlockCall)
            return msgspec.msgpack.encode(await service.gateway.block(call.entry, merge=call.merge))
        if operation == "unblock":
            with contextlib.suppress(NotBlocked):  # the entry has timed out, or an earlier try removed it
                await service.gateway.unblock(msgspec.msgpack.decode(data, type=Place))
            return b""
        if operation == "ask":
            job_id, request = msgspec.msgpack.decode(data, type=tuple[JobId, ProcedureRequest])
            await service.gateway.request_procedure(job_id, request)
            return b""
        if operation == "upgrade":
            job_id, wish = msgspec.msgpack.decode(data, type=tuple[JobId, UpgradeWish])
            await service.gateway.upgrade(job_id, wish)
            return b""
        if operation == "cancel-upgrade":
            await service.gateway.cancel_upgrade(JobId(data.decode()))
            return b""
        if operation == "cancel":
            await service.gateway.cancel(JobId(data.decode()))
            return b""
        return await rpc(operation, data)

    return handle


def _where(error: BaseException | None) -> str:
    trace = None if error is None else error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
