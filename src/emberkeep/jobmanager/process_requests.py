"""Requests of task managers and JobMasters to the leader."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from emberkeep.base.configuration.options.blocklist import REPORT_EXCLUDED
from emberkeep.base.configuration.options.directories import STORAGE_DIRECTORY
from emberkeep.base.configuration.options.high_availability import HA_CLUSTER_ID
from emberkeep.base.configuration.options.job_managers import HEARTBEAT_INTERVAL
from emberkeep.base.configuration.options.local_state import LOCAL_RECOVERY
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Absent, Conflict, InvalidInput, RetryLater
from emberkeep.blocklist.claims import Claimant
from emberkeep.jobmanager.jobs.job_master_reports import Contact
from emberkeep.jobmanager.leader import LeaderSeat
from emberkeep.jobmanager.report_bounds import ReportBounds
from emberkeep.jobmanager.resources.strangers import Strangers
from emberkeep.jobmanager.surroundings import Surroundings
from emberkeep.jobs.ports import JobStore
from emberkeep.kept_logs.model import KeptLogKey
from emberkeep.protocol.messages.job_masters import JobMasterHeartbeat, JobMasterReply, RegisterJobMaster, ReportOutcome
from emberkeep.protocol.messages.logs import KeepLog, LogKept
from emberkeep.protocol.messages.root import Ack, Message
from emberkeep.protocol.messages.task_managers import RegisterTaskManager, TaskManagerHeartbeat


class ProcessRequests:
    """RpcService of a JobManager. Processes that follow another job store are answered by ``strangers``."""

    def __init__(
        self,
        configuration: Configuration,
        surroundings: Surroundings,
        store: JobStore,
        seat: LeaderSeat,
        strangers: Strangers,
    ) -> None:
        self._checkpoint_root = surroundings.checkpoint_root
        self._logs = surroundings.logs
        self._store = store
        self._seat = seat
        self._strangers = strangers
        self._bounds = ReportBounds()
        self._takes_reports = configuration[REPORT_EXCLUDED]
        self._heartbeat_interval = configuration[HEARTBEAT_INTERVAL]
        self._handlers: dict[type[Message], Callable[[Any], Awaitable[Message]]] = {
            RegisterTaskManager: self._register_task_manager,
            TaskManagerHeartbeat: self._task_manager_heartbeat,
            RegisterJobMaster: self._register_job_master,
            JobMasterHeartbeat: self._job_master_heartbeat,
            ReportOutcome: self._report_outcome,
            KeepLog: self._keep_log,
        }

    async def serve(self, request: Message) -> Message:
        """See RpcService. Raises RetryLater if this process does not lead."""
        handler = self._handlers.get(type(request))
        if handler is None:
            raise InvalidInput(f"a JobManager does not serve {type(request).__name__}")
        term = self._seat.leader.term
        answer = self._strangers.answer(request, term.lineage, term.epoch)
        return answer if answer is not None else await handler(request)

    async def _register_task_manager(self, request: RegisterTaskManager) -> Message:
        checkpoints = request.info.checkpoints
        if checkpoints and checkpoints != self._checkpoint_root:
            raise InvalidInput(
                f"task manager {request.info.id} keeps checkpoints in {checkpoints}, this JobManager in "
                f"{self._checkpoint_root}: executors there would not find what their drivers write",
                field=STORAGE_DIRECTORY.key,
                hint=f"give both the same {STORAGE_DIRECTORY.key} and {HA_CLUSTER_ID.key}, on storage "
                f"that both see, or turn {LOCAL_RECOVERY.key} off for the task manager",
            )
        return await self._seat.leader.resources.register(request)

    async def _task_manager_heartbeat(self, request: TaskManagerHeartbeat) -> Message:
        return await self._seat.leader.resources.heartbeat(request)

    async def _keep_log(self, request: KeepLog) -> Message:
        """Store a piece of a log of a known job. Only a confirmed leader writes, for task managers that follow it."""
        leader = self._seat.leader
        leader.term.authority.check()
        try:
            registered = await leader.resources.view(request.task_manager)
        except Absent as error:
            raise RetryLater(f"task manager {request.task_manager} is not registered") from error
        if registered.info.instance != request.instance:
            raise Conflict(f"another process is registered as task manager {request.task_manager}")
        await leader.dispatcher.view(request.job_id)
        key = KeptLogKey(
            job_id=request.job_id, attempt=request.attempt, task_manager=request.task_manager, name=request.name
        )
        return LogKept(position=await self._logs.keep(leader.term.epoch, key, request.piece))

    async def _register_job_master(self, request: RegisterJobMaster) -> Message:
        request = self._bounds.applied(request)
        leader = self._seat.leader
        leader.term.authority.check()  # registration starts the script: only a confirmed leader may allow that
        if request.in_doubt:
            await self._confirm_leadership()
        return await self._answer(request, await leader.dispatcher.job_masters.register(request))

    async def _confirm_leadership(self) -> None:
        """Raise RetryLater if another JobManager is the leader."""
        try:
            await self._store.confirm()
        except Conflict as error:
            raise _deposed(error) from error

    async def _is_confirmed(self) -> bool:
        """True if the store confirms that this JobManager is the leader. Raises RetryLater if another one is."""
        try:
            return await self._seat.leader.term.authority.confirmed()
        except Conflict as error:
            raise _deposed(error) from error

    async def _job_master_heartbeat(self, request: JobMasterHeartbeat) -> Message:
        request = self._bounds.applied(request)
        leader = self._seat.leader
        contact = await leader.dispatcher.job_masters.heartbeat(request)
        if contact is not None:
            confirmed = request.asks_confirmation and await self._is_confirmed()
            return await self._answer(request, contact, confirmed=confirmed)
        return JobMasterReply(
            epoch=leader.term.epoch,
            known=False,
            heartbeat_interval=self._heartbeat_interval,
            lineage=leader.term.lineage,
        )

    async def _answer(
        self, request: RegisterJobMaster | JobMasterHeartbeat, contact: Contact, *, confirmed: bool = False
    ) -> Message:
        leader, job_id, status = self._seat.leader, request.job_id, request.status
        claimant = await self._claimant(request) if status.block_reports and self._takes_reports else None
        blocklist, blocklist_lost = await leader.blocklist.exchange(status, claimant)
        newest = status if contact.is_newest else None
        standing = await leader.resources.standing(job_id, request.attempt, contact.address, newest)
        leader.dispatcher.job_masters.lacking(job_id, is_lacking=bool(standing.missing or status.waiting))
        procedure, recorded = await leader.dispatcher.job_masters.orders(job_id, status.procedure)
        return JobMasterReply(
            epoch=leader.term.epoch,
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
            lineage=leader.term.lineage,
            trace=contact.trace,
            reclaim=standing.reclaim,
            confirmed=confirmed,
            lease=contact.lease,
        )

    async def _claimant(self, request: RegisterJobMaster | JobMasterHeartbeat) -> Claimant:
        """Return where the attempt has slots. Its task managers say so: the driver runs the job's own code."""
        views = await self._seat.leader.resources.views()
        hosts = {
            view.info.node_id
            for view in views
            for slot in view.report.allocations
            if (slot.job_id, slot.attempt) == (request.job_id, request.attempt)
        }
        return Claimant(request.job_id, frozenset(hosts), frozenset(view.info.node_id for view in views))

    async def _report_outcome(self, request: ReportOutcome) -> Message:
        leader = self._seat.leader
        leader.term.authority.check()  # after an Ack the driver stops reporting: only a confirmed leader may send one
        await leader.dispatcher.job_masters.report_outcome(request)
        if request.outcome.kind is None:
            leader.resources.suspects.succeeded(request.job_id)
        return Ack()


def _deposed(error: Conflict) -> RetryLater:
    """Return what a JobMaster is told. It would take a Conflict for the end of its attempt."""
    return RetryLater(f"this JobManager is no longer the leader: {error.message}")
