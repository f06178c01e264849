"""The JobManager of one process: opens the stores, recovers the jobs, runs the actors and serves all callers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from emberkeep.base.configuration import options
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Conflict, InvalidInput, RetryLater, Unavailable
from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.base.system import System
from emberkeep.blocklist.model import Blocked, Blocklist, Place
from emberkeep.jobmanager.authority import Authority
from emberkeep.jobmanager.blobs.server import BlobServer
from emberkeep.jobmanager.jobs.admission import check_graph, driver_need, executor_profile
from emberkeep.jobmanager.jobs.dispatcher import Dispatcher
from emberkeep.jobmanager.jobs.driver_calls import DriverSurroundings
from emberkeep.jobmanager.jobs.job_master_reports import Contact
from emberkeep.jobmanager.jobs.procedure_defaults import with_defaults
from emberkeep.jobmanager.nodes.blocklist_handler import BlocklistHandler
from emberkeep.jobmanager.nodes.blocklist_recovery import find_blocklist
from emberkeep.jobmanager.nodes.fault_watch import FaultWatch
from emberkeep.jobmanager.resources.resource_manager import ResourceManager
from emberkeep.jobmanager.resources.strangers import Strangers
from emberkeep.jobmanager.resources.task_manager_supplier import TaskManagerSupplier
from emberkeep.jobmanager.steady_clock import SteadyClock
from emberkeep.jobmanager.store_writes import StoreWrites
from emberkeep.jobmanager.term import Term
from emberkeep.jobmanager.views.blocklist import Blocking
from emberkeep.jobmanager.views.cluster import JobView, Stranger, Submission, TaskManagerView
from emberkeep.jobmanager.views.evacuation import with_evacuations
from emberkeep.jobmanager.views.jobs import with_missing
from emberkeep.jobmanager.views.procedures import ProcedureView
from emberkeep.jobs.hearing import Hearing
from emberkeep.jobs.model import JobGraph
from emberkeep.jobs.ports import JobStore
from emberkeep.lifecycle.model import ProcedureRequest
from emberkeep.protocol.messages import (
    Ack,
    JobMasterHeartbeat,
    JobMasterReply,
    Message,
    RegisterJobMaster,
    RegisterTaskManager,
    ReportOutcome,
    TaskManagerHeartbeat,
)
from emberkeep.protocol.transport import RpcClient
from emberkeep.slots.resource_driver import ResourceManagerDriver


class SharedStorage(Protocol):
    """State of the storage that all processes share. ``problem``: why it cannot be used now, or ""."""

    problem: str

    async def expect(self) -> None:
        """Check the storage now, and expect data of this cluster in it, because the cluster has recovered jobs."""


class JobManagerService:
    """RpcService and JobManagerGateway of a JobManager.

    Until ``run`` has recovered the jobs, and after it has ended, calls raise RetryLater.

    - ``address``: host:port that other processes use.
    - ``checkpoint_root``: where queries without a checkpoint location of their own keep theirs.
    - ``savepoint_root``: where savepoints go if no directory is named or configured.
    - ``checkpoints_recorded``: returns True if ``checkpoint_root`` has an ownership record; called once the store is
      open.
    - ``driver``: starts task managers if more are needed; None if people start them.
    - ``storage``: None if nothing watches the shared storage.
    - ``steps_aside``: resign once this process has lost contact with most task managers.
    """

    def __init__(
        self,
        system: System,
        configuration: Configuration,
        rpc: RpcClient,
        store: JobStore,
        blobs: BlobServer,
        *,
        address: str,
        checkpoint_root: str,
        savepoint_root: str,
        checkpoints_recorded: Callable[[], bool] = lambda: False,
        driver: ResourceManagerDriver | None = None,
        steps_aside: bool = False,
        storage: SharedStorage | None = None,
    ) -> None:
        self._driver = driver
        self._storage = storage
        self._system = system
        self._configuration = configuration
        self._rpc = rpc
        self._store = store
        self._blobs = blobs
        self._address = address
        self._checkpoint_root = checkpoint_root
        self._savepoint_root = savepoint_root
        self._checkpoints_recorded = checkpoints_recorded
        self._steps_aside = steps_aside
        self._heartbeat_interval = configuration[options.HEARTBEAT_INTERVAL]
        self._epoch = 0
        self._started_ms = 0
        self._paused = False
        self._authority: Authority | None = None  # set while it leads
        self._actors: tuple[Dispatcher, ResourceManager, BlocklistHandler] | None = None
        self._strangers = Strangers()
        self._ready = asyncio.Event()
        self._requests: dict[type[Message], Callable[[Any], Awaitable[Message]]] = {
            RegisterTaskManager: self._register_task_manager,
            TaskManagerHeartbeat: self._task_manager_heartbeat,
            RegisterJobMaster: self._register_jobmaster,
            JobMasterHeartbeat: self._jobmaster_heartbeat,
            ReportOutcome: self._report_outcome,
        }

    async def run(self, epoch: int | None = None) -> None:
        """Recover and lead until cancelled. ``epoch``: the store's epoch, if the store is open already.

        Raises Conflict if another JobManager is the leader or takes over.
        """
        reads = StoreWrites(self._store, self._system.rng)
        if epoch is None:
            epoch = await reads.read("the job store does not open", self._store.open)
        self._epoch = epoch
        try:
            stored = await reads.read("jobs cannot be recovered", self._store.recover)
            results = await reads.read("results cannot be read", self._store.results)
            if stored and self._storage is not None:
                await self._storage.expect()
            kept = [result.job_id for result in results if result.keeps_data]
            await self._blobs.open(
                [*(entry.job_id for entry in stored), *kept],
                [result.job_id for result in results if not result.keeps_data],
            )
            self._started_ms = self._system.clock.now_ms()
            clock = SteadyClock(self._system.clock)
            hearing = Hearing(
                clock.now(),
                # Silence is noticed after half the timeout, before the whole timeout draws any conclusion from it.
                patience=self._configuration[options.HEARTBEAT_TIMEOUT] / 2,
                longest_doubt=self._configuration[options.DRIVER_LEASE],
                deafness=self._configuration[options.ORPHAN_TIMEOUT] if any(job.attempt for job in stored) else None,
            )
            authority = self._authority = Authority(
                self._system.clock,
                clock,
                hearing,
                self._store.confirm,
                patience=self._configuration[options.RPC_TIMEOUT],
                forgiving=self._heartbeat_interval,
            )
            if self._paused:
                authority.pause()
            # Find the blocklist before any task manager can register: no decision is ever made without it.
            found = await find_blocklist(self._store, reads, self._configuration)
            places, removals = found.places, found.blocklist.removals
            term = Term(self._epoch, self._store.lineage, clock, hearing, authority)
            resources = ResourceManager(
                self._system,
                self._configuration,
                self._rpc,
                term,
                steps_aside=self._steps_aside,
                blocked=places,
            )
            dispatcher = Dispatcher(
                self._system,
                self._configuration,
                self._rpc,
                self._store,
                self._blobs,
                resources=resources,
                term=term,
                surroundings=DriverSurroundings(self._address, self._checkpoint_root, self._checkpoints_recorded()),
                blocked=places,
                storage_problem=lambda: "" if self._storage is None else self._storage.problem,
            )
            blocklist = BlocklistHandler(self._system, found, reads, resources, dispatcher.evacuation)
            if self._configuration[options.DETECTION]:
                faults = FaultWatch(self._configuration, removals, clock.now(), clock.now_ms())
                resources.suspects.detect(faults, partial(blocklist.block, merge=False))
            resources.listen(dispatcher.cluster)
            suppliers = (
                ()
                if self._driver is None
                else (TaskManagerSupplier(self._configuration, self._driver, resources, clock),)
            )
            await self._lead(dispatcher, resources, blocklist, suppliers, dispatcher.recover(stored, results))
        finally:
            self._authority = None
            await self._store.close()

    async def _lead(
        self,
        dispatcher: Dispatcher,
        resources: ResourceManager,
        blocklist: BlocklistHandler,
        suppliers: tuple[TaskManagerSupplier, ...],
        recovery: Coroutine[Any, Any, None],
    ) -> None:
        running = [
            asyncio.create_task(dispatcher.run(), name="dispatcher"),
            asyncio.create_task(resources.run(), name="resource-manager"),
            asyncio.create_task(blocklist.run(), name="blocklist"),
            asyncio.create_task(self._blobs.run(), name="blob-server"),
            asyncio.create_task(self._confirming().run(), name="authority"),
            asyncio.create_task(self._confirming().remind(), name="authority-reminder"),
        ]
        recovering = asyncio.create_task(recovery, name="recovery")
        try:
            # Serve task managers only once all jobs are known: what belongs to an unknown job counts as over.
            await asyncio.wait({recovering, *running}, return_when=asyncio.FIRST_COMPLETED)
            if recovering.done():
                recovering.result()
                self._actors = (dispatcher, resources, blocklist)
                self._ready.set()
                running += [asyncio.create_task(each.run(), name="task-manager-supplier") for each in suppliers]
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in running:
                if task.done():
                    task.result()
        finally:
            self._ready.clear()
            self._actors = None
            for task in (recovering, *running):
                task.cancel()
            await asyncio.gather(recovering, *running, return_exceptions=True)

    async def ready(self) -> None:
        """Return once the jobs are recovered and calls are served."""
        await self._ready.wait()

    @property
    def _dispatcher(self) -> Dispatcher:
        return self._live()[0]

    @property
    def _resources(self) -> ResourceManager:
        return self._live()[1]

    @property
    def _blocklist(self) -> BlocklistHandler:
        return self._live()[2]

    def _live(self) -> tuple[Dispatcher, ResourceManager, BlocklistHandler]:
        if self._actors is None:
            raise RetryLater("this JobManager does not lead", hint="it is starting or stopping: try again in a second")
        return self._actors

    def pause(self) -> None:
        """Decide nothing and refuse requests of people until ``resume``: the leadership cannot be confirmed."""
        self._paused = True
        if self._authority is not None:
            self._authority.pause()
        self._blobs.pause()

    def resume(self) -> None:
        """Decide again: the leadership is confirmed."""
        self._paused = False
        if self._authority is not None:
            self._authority.resume()
        self._blobs.resume()

    @property
    def problem(self) -> str:
        """What this leader cannot do now, and what to do about it; usually ""."""
        doubt = "" if self._authority is None else self._authority.problem
        return doubt or ("" if self._storage is None else self._storage.problem)

    def _check_confirmed(self) -> None:
        if self._paused:
            raise RetryLater(
                "this JobManager cannot confirm that it leads: ZooKeeper cannot be reached",
                hint="running jobs go on; try again",
            )

    async def _confirm_leadership(self) -> None:
        """Raise RetryLater if another JobManager is the leader."""
        try:
            await self._store.confirm()
        except Conflict as error:
            raise RetryLater(f"this JobManager does not lead any more: {error.message}") from error

    def _confirming(self) -> Authority:
        if self._authority is None:
            raise RetryLater("this JobManager does not lead", hint="it is starting or stopping: try again in a second")
        return self._authority

    def check_invariants(self) -> None:
        """Raise AssertionError if a state contradicts itself.

        For tests and the simulator; checks no actor during a start.
        """
        for actor in self._actors or ():
            actor.check_invariants()
        self._blobs.check_invariants()

    # --- RpcService ---------------------------------------------------------------------------------------------------

    async def serve(self, request: Message) -> Message:
        """Answer one request of a TaskManager or JobMaster. See RpcService."""
        handler = self._requests.get(type(request))
        if handler is None:
            raise InvalidInput(f"a JobManager does not serve {type(request).__name__}")
        if self._actors is not None:
            answer = self._strangers.answer(request, self._store.lineage, self._epoch)
            if answer is not None:
                return answer
        return await handler(request)

    async def _register_task_manager(self, request: RegisterTaskManager) -> Message:
        checkpoints = request.info.checkpoints
        if checkpoints and checkpoints != self._checkpoint_root:
            raise InvalidInput(
                f"task manager {request.info.id} keeps checkpoints in {checkpoints}, this JobManager in "
                f"{self._checkpoint_root}: a job's executors there would not find what its driver writes",
                field=options.STORAGE_DIRECTORY.key,
                hint=f"give both the same {options.STORAGE_DIRECTORY.key} and {options.HA_CLUSTER_ID.key}, on storage "
                f"that both see, or turn {options.LOCAL_RECOVERY.key} off for the task manager",
            )
        return await self._resources.register(request)

    def strangers(self) -> tuple[Stranger, ...]:
        return self._strangers.named()

    async def _task_manager_heartbeat(self, request: TaskManagerHeartbeat) -> Message:
        return await self._resources.heartbeat(request)

    async def _register_jobmaster(self, request: RegisterJobMaster) -> Message:
        self._confirming().check()  # registration starts the script: only a confirmed leader may allow that
        if request.in_doubt:
            await self._confirm_leadership()
        return await self._answer(request, await self._dispatcher.job_masters.register(request))

    async def _jobmaster_heartbeat(self, request: JobMasterHeartbeat) -> Message:
        contact = await self._dispatcher.job_masters.heartbeat(request)
        if contact is None:
            return JobMasterReply(
                epoch=self._epoch,
                known=False,
                heartbeat_interval=self._heartbeat_interval,
                lineage=self._store.lineage,
            )
        return await self._answer(request, contact)

    async def _answer(self, request: RegisterJobMaster | JobMasterHeartbeat, contact: Contact) -> Message:
        job_id, status = request.job_id, request.status
        blocklist, blocklist_lost = await self._blocklist.exchange(status)
        newest = status if contact.is_newest else None
        standing = await self._resources.standing(job_id, request.attempt, contact.address, newest)
        procedure, recorded = await self._dispatcher.job_masters.orders(job_id, status.procedure)
        return JobMasterReply(
            epoch=self._epoch,
            known=True,
            heartbeat_interval=self._heartbeat_interval,
            lost=standing.lost,
            missing=standing.missing,
            missing_blocked=standing.blocked,
            blocklist=blocklist,
            blocklist_lost=blocklist_lost,
            procedure=procedure,
            procedure_recorded=recorded,
            draining=standing.draining,
            lineage=self._store.lineage,
        )

    async def _report_outcome(self, request: ReportOutcome) -> Message:
        self._confirming().check()  # after an Ack the driver stops reporting: only a confirmed leader may send one
        await self._dispatcher.job_masters.report_outcome(request)
        if request.outcome.kind is None:
            self._resources.suspects.succeeded(request.job_id)
        return Ack()

    # --- JobManagerGateway --------------------------------------------------------------------------------------------

    def epoch(self) -> int:
        return self._epoch

    def started_ms(self) -> int:
        return self._started_ms

    def address(self) -> str:
        return self._address

    async def submit(self, graph: JobGraph) -> Submission:
        self._check_confirmed()
        if self._storage is not None and self._storage.problem:
            raise Unavailable(self._storage.problem, hint="no job is accepted before; running ones go on")
        check_graph(graph)
        obstacle = await self._resources.obstacle(driver_need(graph), executor_profile(graph))
        if obstacle:
            raise InvalidInput(
                f"job {graph.name!r} can never run here: {obstacle}",
                field="resources",
                hint="ask for less, or start a larger task manager first",
            )
        return await self._dispatcher.submissions.submit(graph)

    async def cancel(self, job_id: JobId, *, grace: float | None = None) -> None:
        self._check_confirmed()
        await self._dispatcher.cancellations.cancel(job_id, grace=grace)

    async def jobs(self) -> list[JobView]:
        views = await self._dispatcher.views()
        waiting = [view.job_id for view in views if not view.status.is_globally_terminal]
        missing = await self._resources.missing(waiting) if waiting else {}
        return [with_missing(view, missing.get(view.job_id, "")) for view in views]

    async def job(self, job_id: JobId) -> JobView:
        view = await self._dispatcher.view(job_id)
        if view.status.is_globally_terminal:
            return view
        missing = await self._resources.missing([job_id])
        return with_missing(view, missing[job_id])

    async def task_managers(self) -> list[TaskManagerView]:
        return await self._with_evacuations(await self._resources.views())

    async def task_managers_by_node(self) -> dict[str, list[TaskManagerId]]:
        return await self._resources.ids_by_node()

    async def task_manager(self, task_manager_id: TaskManagerId) -> TaskManagerView:
        (view,) = await self._with_evacuations([await self._resources.view(task_manager_id)])
        return view

    async def _with_evacuations(self, views: list[TaskManagerView]) -> list[TaskManagerView]:
        if not any(view.evacuated for view in views):
            return views
        return with_evacuations(views, await self._dispatcher.views())

    async def stop_task_manager(self, task_manager_id: TaskManagerId, *, drain: float) -> None:
        self._check_confirmed()
        await self._resources.ends.stop(task_manager_id, drain)

    # --- ProcedureGateway ---------------------------------------------------------------------------------------------

    async def request_procedure(self, job_id: JobId, request: ProcedureRequest) -> ProcedureRequest:
        self._check_confirmed()
        if request.procedure.makes_savepoint:
            view = await self._dispatcher.view(job_id)
            request = with_defaults(request, self._configuration, view.graph, self._savepoint_root)
        await self._dispatcher.request_procedure(job_id, request)
        return request

    async def procedure(self, job_id: JobId, trigger_id: str) -> ProcedureView:
        return await self._dispatcher.procedure(job_id, trigger_id)

    # --- BlocklistGateway ---------------------------------------------------------------------------------------------

    async def blocklist_problem(self) -> str:
        return await self._blocklist.problem()

    async def blocklist(self) -> Blocklist:
        return await self._blocklist.blocklist()

    async def block(self, entry: Blocked, *, merge: bool, keep_drivers: bool = False) -> Blocking:
        self._check_confirmed()
        return await self._blocklist.block(entry, merge=merge, keep_drivers=keep_drivers)

    async def unblock(self, place: Place) -> None:
        self._check_confirmed()
        await self._blocklist.unblock(place)
        self._resources.suspects.unblocked(place)
