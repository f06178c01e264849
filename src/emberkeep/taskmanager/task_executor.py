"""The actor that owns a task manager's slots and processes.

The SlotTable decides. This actor carries out its decisions through the Launcher, and calls JobMasters and the
JobManager. Each decision is on disk before anything depends on it, so that the next task manager process can continue
from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import structlog

from emberkeep.base.actors import Actor, asked, told
from emberkeep.base.beacon import answer_timeout
from emberkeep.base.configuration.options import (
    ADOPT_LEADER,
    DRIVER_START_TIMEOUT,
    HEARTBEAT_INTERVAL,
    HEARTBEAT_TIMEOUT,
    RPC_TIMEOUT,
    SLOT_TIMEOUT,
)
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Conflict, RetryLater
from emberkeep.base.ids import AllocationId, ExecutorId, JobId
from emberkeep.base.system import System
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.protocol.limits import LEFT_JOBS, SEEN_JOBS
from emberkeep.protocol.messages import (
    Ack,
    AllocateSlot,
    AttemptKey,
    JobMasterBeat,
    Message,
    OfferSlotsReply,
    ReleaseSlot,
    SlotsReply,
    StartDriver,
    StartExecutor,
    StopDriver,
    StopTaskManager,
    TaskManagerHeartbeatReply,
    TaskManagerRegistered,
    TaskManagerReport,
)
from emberkeep.protocol.transport import RpcClient
from emberkeep.slots.model import TaskManagerInfo
from emberkeep.slots.table import events as table
from emberkeep.slots.table.events import SlotState
from emberkeep.slots.table.machine import SlotTable, TableLimits
from emberkeep.slots.table.record import recall_ended, record_table, restore_table
from emberkeep.taskmanager.agent_record import AgentRecord, OutcomeRecord
from emberkeep.taskmanager.job_manager_link import JobManagerLink, JobManagerReply
from emberkeep.taskmanager.job_master_calls import JobMasterCalls
from emberkeep.taskmanager.journal import Journal
from emberkeep.taskmanager.ports import (
    AgentStore,
    AllocationListener,
    DriverKey,
    ExecutorKey,
    Launcher,
    NodeUsage,
    ProcessExit,
    ProcessKey,
)
from emberkeep.taskmanager.processes import DriverNotStarted, Processes, ProcessEvent
from emberkeep.taskmanager.recovery import (
    GONE,
    NO_ROOM,
    ended_drivers,
    jobs_held,
    lost_outcome,
    recorded_processes,
)
from emberkeep.taskmanager.reports import executor_report, task_manager_report

log = structlog.get_logger(__name__)

# Seconds for which a job's files stay after the job last held something here, unless the JobManager reports that the
# job has ended. Its next attempt may come back after waiting for a restart delay and for a place.
FORGET_AFTER = 3600.0
TICKS_PER_HEARTBEAT = 4


# Messages of the JobManager and of JobMasters that a TaskExecutor answers.
Served = StartDriver | StopDriver | StopTaskManager | AllocateSlot | StartExecutor | ReleaseSlot | JobMasterBeat


class TaskExecutor(Actor):
    """Owns a task manager's slots and processes."""

    def __init__(
        self,
        system: System,
        configuration: Configuration,
        info: TaskManagerInfo,
        rpc: RpcClient,
        launcher: Launcher,
        store: AgentStore,
        job_manager: str,
        usage: Callable[[], NodeUsage],
        listeners: Sequence[AllocationListener],
    ) -> None:
        super().__init__("task-executor")
        self.info = info
        self.journal = Journal(store)
        self.emptied = asyncio.Event()  # set when it is closing and nothing is left
        self.stop_asked = asyncio.Event()  # set once the JobManager has asked this task manager to end
        self.stop_by = 0.0  # on the monotonic clock: the work here may end by itself until then
        self._system = system
        self._job_masters = JobMasterCalls(rpc, configuration[RPC_TIMEOUT])
        self._usage = usage
        self._heartbeat_interval = configuration[HEARTBEAT_INTERVAL]
        self._launcher = launcher
        self._listeners = listeners
        self._adopted = 0  # processes of the previous task manager process that continue to run
        self._known = info.instance  # the newest instance that another process knows
        self.table = SlotTable(
            TableLimits(
                slots=info.slots,
                driver_places=info.driver_places,
                total=info.total,
                slot_timeout=configuration[SLOT_TIMEOUT],
                # A silent JobMaster counts as lost after the heartbeat timeout; the slot timeout is its time to answer.
                recovery_timeout=configuration[HEARTBEAT_TIMEOUT] + configuration[SLOT_TIMEOUT],
                silence_timeout=configuration[HEARTBEAT_TIMEOUT],
                forget_after=FORGET_AFTER,
            )
        )
        self.link = JobManagerLink(
            system,
            rpc,
            info,
            self,
            job_manager,
            interval=self._heartbeat_interval,
            rpc_timeout=answer_timeout(configuration[RPC_TIMEOUT], configuration[HEARTBEAT_TIMEOUT]),
            silence_timeout=configuration[HEARTBEAT_TIMEOUT],
        )
        self._sequence = 0
        self._adopts_leader = configuration[ADOPT_LEADER]  # until this process has registered at a JobManager
        self._outcomes: dict[DriverKey, AttemptOutcome] = {}  # of drivers that the table lists as ended
        self._offering: set[tuple[JobId, int]] = set()  # attempts with an offer under way
        self._processes = Processes(
            launcher, self.start_effect, self.process_changed, self.journal.settled, configuration[DRIVER_START_TIMEOUT]
        )
        launcher.on_exit(self.process_exited)

    async def run(self) -> None:
        """Take over what the previous task manager process left, then serve until cancelled.

        Raises Fatal after a lasting refusal by the JobManager. Raises Unavailable or NewerFormat if what the previous
        process left cannot be read now, or not by this release; its drivers and executors continue to run.
        """
        await self._recover()
        self.start_effect("journal", self.journal.run(), deadline=None)
        self.start_effect("job-manager-link", self.link.run(), deadline=None)
        self.start_effect("ticks", self._tick(), deadline=None)
        await super().run()

    @asked
    def serve(self, message: Served) -> Message:
        """Answer a JobManager or a JobMaster. Raises Conflict, RetryLater."""
        match message:
            case StartDriver():
                return self._start_driver(message)
            case StopDriver():
                return self._stop_driver(message)
            case StopTaskManager():
                return self._stop_task_manager(message)
            case AllocateSlot():
                return self._allocate_slot(message)
            case StartExecutor():
                return self._start_executor(message)
            case ReleaseSlot():
                return self._release_slot(message)
            case JobMasterBeat():
                return self._beat(message)

    @asked
    def close(self, grace: float) -> None:
        """Refuse new work, and end drivers with ``grace`` seconds, and executors."""
        self._decide(table.Close(grace))

    @property
    def holds_nothing(self) -> bool:
        """True if no slot is held and no driver is alive. Implements LinkOwner."""
        return self.table.is_empty

    @property
    def _follows_any(self) -> bool:
        """True if this task manager accepts a JobManager with another job store.

        It does if it holds nothing that could be lost, or if the ADOPT_LEADER option allows it.
        """
        return self.table.holds_nothing or self._adopts_leader

    def followed_lineage(self) -> str:
        """Return the lineage of the only job store whose JobManagers are followed; "" if all are."""
        return "" if self._follows_any else self.table.fences.lineage

    def followed_epoch(self) -> int:
        """Implements LinkOwner."""
        return 0 if self._follows_any else self.table.fences.epoch

    def attempts_seen(self) -> tuple[AttemptKey, ...]:
        """Implements LinkOwner."""
        newest = self.table.fences.records()[-SEEN_JOBS:]
        return tuple(AttemptKey(job_id=fence.job_id, attempt=fence.highest) for fence in newest)

    # --- recovery -----------------------------------------------------------------------------------------------------

    async def _recover(self) -> None:
        """Take over the recorded table and its processes. Nothing is served yet."""
        earlier = await self.journal.read()
        if earlier is not None:
            self.table = restore_table(self.table.limits, earlier.table, self._system.clock.monotonic())
            self._known = earlier.instance
            self.info = msgspec.structs.replace(self.info, predecessor=earlier.instance)
            self.link.info = self.info
            for record in earlier.outcomes:
                self._outcomes[DriverKey(job_id=record.job_id, attempt=record.attempt)] = record.outcome
        processes, ended = recorded_processes(self.table), ended_drivers(self.table)
        adopted = await self._launcher.adopt(
            frozenset(processes), ended - self._outcomes.keys(), None if earlier is None else jobs_held(self.table)
        )
        if earlier is None:
            ended = frozenset(adopted.outcomes)
            for key in ended:
                recall_ended(self.table, key.job_id, key.attempt, self._system.clock.monotonic())
        self._adopted = len(adopted.alive)
        if processes or self.table.slots:
            log.info("recovered", slots=len(self.table.slots), processes=len(processes), alive=len(adopted.alive))
        for slot in self.table.slots.values():
            for listener in self._listeners:
                listener.allocation_recovered(slot.allocation)
        for key in ended:
            self._outcomes.setdefault(key, adopted.outcomes.get(key) or lost_outcome(NO_ROOM))
        for process in processes:
            self._found(process, adopted.alive.get(process), adopted.outcomes)
        self._keep()

    def _found(self, key: ProcessKey, pid: int | None, outcomes: dict[DriverKey, AttemptOutcome]) -> None:
        """Update the table for a recorded process. ``pid`` is None if the process is no longer alive."""
        if isinstance(key, ExecutorKey):
            self._decide(
                table.ExecutorStarted(key.allocation_id, key.executor_id, pid)
                if pid is not None
                else table.ExecutorEnded(key.allocation_id, key.executor_id, None, GONE)
            )
        elif pid is not None:
            self._decide(table.DriverStarted(key.job_id, key.attempt, pid))
        else:
            self._outcomes.setdefault(key, outcomes.get(key) or lost_outcome(f"the driver {GONE}"))
            self._decide(table.DriverEnded(key.job_id, key.attempt))

    # --- messages of the JobManager -----------------------------------------------------------------------------------

    def _start_driver(self, message: StartDriver) -> Message:
        self._decide(table.EpochSeen(message.epoch, message.lineage))
        key = DriverKey(job_id=message.graph.job_id, attempt=message.attempt)
        if table.LaunchDriver(key.job_id, key.attempt) in self._decide(
            table.ReserveDriver(key.job_id, key.attempt, message.memory_mb)
        ):
            self._processes.launch_driver(message, lambda: self._may_start(key))
        return Ack()

    def _may_start(self, key: DriverKey) -> bool:
        """True if the driver that is being started has not been asked to end."""
        driver = self.table.drivers.by_attempt.get((key.job_id, key.attempt))
        return driver is not None and driver.stop_grace is None

    def _stop_driver(self, message: StopDriver) -> Message:
        self._decide(table.EpochSeen(message.epoch, message.lineage))
        self._decide(table.StopWanted(message.job_id, message.attempt, message.grace))
        return Ack()

    def _stop_task_manager(self, message: StopTaskManager) -> Message:
        self._decide(table.EpochSeen(message.epoch, message.lineage))
        if message.instance != self.info.instance:
            raise Conflict(
                f"instance {message.instance} of task manager {self.info.id} was to end; it was started anew"
            )
        self._decide(table.Drain(moves=message.drain > 0))
        self.stop_by = self._system.clock.monotonic() + message.drain
        self.stop_asked.set()
        return Ack()

    def _allocate_slot(self, message: AllocateSlot) -> Message:
        self._decide(table.EpochSeen(message.epoch, message.lineage))
        self._decide(
            table.ReserveSlot(
                message.allocation_id, message.job_id, message.attempt, message.profile, message.job_master
            )
        )
        return Ack()

    @asked
    def take_reply(self, reply: JobManagerReply) -> None:
        if isinstance(reply, TaskManagerRegistered) and self._follows_any:
            self._decide(table.StoreFollowed(reply.epoch, reply.lineage))
        try:
            self._decide(table.EpochSeen(reply.epoch, reply.lineage))
        except Conflict as error:
            raise RetryLater(error.message, hint=error.hint) from None
        if isinstance(reply, TaskManagerRegistered):
            self._adopts_leader = False
            self._known = self.info.instance
            self._keep()
        if isinstance(reply, TaskManagerHeartbeatReply):
            for key in reply.acknowledged:
                self._decide(table.DriverAcknowledged(key.job_id, key.attempt))
            for key in reply.stale:
                self._decide(table.AttemptsOver(key.job_id, key.attempt))
            if reply.ended:
                self._decide(table.JobsEnded(reply.ended))

    # --- messages of JobMasters ---------------------------------------------------------------------------------------

    def _start_executor(self, message: StartExecutor) -> Message:
        wanted = table.StartWanted(message.job_id, message.attempt, message.allocation_id, message.executor_id)
        if table.LaunchExecutor(message.allocation_id, message.executor_id) in self._decide(wanted):
            self._processes.launch_executor(
                message, lambda: self._may_start_executor(message.allocation_id, message.executor_id)
            )
        return Ack()

    def _may_start_executor(self, allocation_id: AllocationId, executor_id: ExecutorId) -> bool:
        """True if the executor that is being started still has its slot."""
        slot = self.table.slots.get(allocation_id)
        return slot is not None and slot.executor_id == executor_id and slot.state is SlotState.STARTING

    def _release_slot(self, message: ReleaseSlot) -> Message:
        self._decide(table.SlotReleased(message.job_id, message.attempt, message.allocation_id, message.stopped))
        return Ack()

    def _beat(self, message: JobMasterBeat) -> Message:
        self._decide(table.JobMasterHeard(message.job_id, message.attempt, message.allocations, message.decommissioned))
        held = self.table.held_by(message.job_id, message.attempt)
        reports = [executor_report(slot) for slot in held]
        return SlotsReply(
            instance=self.info.instance,
            allocations=tuple(slot.allocation.id for slot in held),
            executors=tuple(report for report in reports if report is not None),
        )

    def _offer_returned(
        self,
        attempt: tuple[JobId, int],
        offered: tuple[AllocationId, ...],
        answer: OfferSlotsReply | None,
        *,
        refused: bool = False,
    ) -> None:
        """Note the result of an offer.

        ``answer`` None: no answer, so the offer is repeated, unless it was ``refused`` as a whole, perhaps by a process
        that is not the attempt's JobMaster.
        """
        self._offering.discard(attempt)
        if answer is not None and answer.accepted:
            self._known = self.info.instance
        if refused:
            self._decide(table.OfferRefused(offered))
        elif answer is not None:
            self._decide(table.OfferAnswered(offered, answer.accepted, answer.later))
        else:
            self._offer_all()

    # --- processes ----------------------------------------------------------------------------------------------------

    @told
    def process_changed(self, event: ProcessEvent) -> None:
        """Note what has become of a process that was to start or to end."""
        if isinstance(event, DriverNotStarted):
            self._driver_not_started(event)
        else:
            self._decide(event)

    @told
    def process_exited(self, event: ProcessExit) -> None:
        key = event.key
        if isinstance(key, ExecutorKey):
            log.info("executor ended", job=key.job_id, executor=key.executor_id, exit_code=event.exit_code)
            self._decide(table.ExecutorEnded(key.allocation_id, key.executor_id, event.exit_code, event.detail))
            return
        log.info("driver ended", job=key.job_id, attempt=key.attempt, exit_code=event.exit_code)
        lost = lost_outcome(f"the driver left no outcome; {event.detail}", event.exit_code)
        self._outcomes.setdefault(key, event.outcome or lost)
        self._decide(table.DriverEnded(key.job_id, key.attempt))

    def _driver_not_started(self, event: DriverNotStarted) -> None:
        log.warning("driver could not be started", job=event.key.job_id, reason=event.message)
        outcome = AttemptOutcome(exit_code=1, kind=FailureKind.SETUP, message=event.message, lasting=event.lasting)
        self._outcomes.setdefault(event.key, outcome)
        self._decide(table.DriverEnded(event.key.job_id, event.key.attempt))

    # --- effects ------------------------------------------------------------------------------------------------------

    def _decide(self, event: table.TableEvent) -> list[table.TableEffect]:
        """Have the table decide, carry out the effects and return them.

        Launches are left to the caller, which has the request.
        """
        effects = self.table.handle(event, self._system.clock.monotonic())
        for effect in effects:
            self._carry_out(effect)
        self._offer_all()
        if self.table.closing and self.table.is_empty:
            self.emptied.set()
        self._outcomes = {
            key: outcome
            for key, outcome in self._outcomes.items()
            if (key.job_id, key.attempt) in self.table.drivers.by_attempt
        }
        self._keep()
        return effects

    def _keep(self) -> None:
        outcomes = tuple(
            OutcomeRecord(job_id=key.job_id, attempt=key.attempt, outcome=outcome)
            for key, outcome in self._outcomes.items()
        )
        self.journal.put(AgentRecord(instance=self._known, table=record_table(self.table), outcomes=outcomes))

    def _carry_out(self, effect: table.TableEffect) -> None:
        match effect:
            case table.ReportChanged():
                self.link.wake()
            case table.LaunchDriver() | table.LaunchExecutor():
                pass  # the handler of the request launches it
            case table.EndExecutor() | table.DecommissionExecutor():
                self._tell_executor(effect)
            case table.EndDriver():
                self._processes.end(DriverKey(job_id=effect.job_id, attempt=effect.attempt), effect.grace)
            case table.TellJobMaster():
                self.start_effect("tell-job-master", self._tell_job_master(effect.allocation_id), deadline=None)
            case table.ForgetJob():
                self._processes.forget(effect.job_id)
                for listener in self._listeners:
                    listener.job_forgotten(effect.job_id)
            case table.SlotBegun():
                for listener in self._listeners:
                    listener.allocation_begun(effect.allocation)
            case table.SlotFreed():
                for listener in self._listeners:
                    listener.allocation_freed(effect.allocation, effect.may_return)

    def _tell_executor(self, effect: table.EndExecutor | table.DecommissionExecutor) -> None:
        key = ExecutorKey(
            job_id=effect.job_id,
            attempt=effect.attempt,
            allocation_id=effect.allocation_id,
            executor_id=effect.executor_id,
        )
        if isinstance(effect, table.EndExecutor):
            self._processes.end(key, 0.0)
        else:
            self._processes.decommission(key)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_interval / TICKS_PER_HEARTBEAT)
            await self.ask(partial(self._decide, table.Tick()))

    def _offer_all(self) -> None:
        """Offer all slots that wait for acceptance, unless an offer to their attempt is under way."""
        for attempt in self.table.offers():
            if attempt not in self._offering:
                self._offering.add(attempt)
                self.start_effect("offer", self._offer(attempt), deadline=None)

    async def _offer(self, attempt: tuple[JobId, int]) -> None:
        """Offer the slots that the attempt has not accepted, once the record that lists them is on disk."""
        await self.journal.settled()
        slots = self.table.offers().get(attempt, ())
        offered = tuple(slot.allocation.id for slot in slots)
        try:
            answer = await self._job_masters.offer(self.info, slots) if slots else None
        except Conflict as error:
            log.info("slots were refused", job=attempt[0], attempt=attempt[1], reason=str(error))
            self.tell(partial(self._offer_returned, attempt, offered, None, refused=True))
            return
        self.tell(partial(self._offer_returned, attempt, offered, answer))

    async def _tell_job_master(self, allocation_id: AllocationId) -> None:
        slot = self.table.slots.get(allocation_id)
        if slot is not None:
            await self._job_masters.tell(self.info, slot)

    @asked
    def take_report(self) -> TaskManagerReport:
        self._sequence += 1
        left = self.table.name_left(LEFT_JOBS)
        return task_manager_report(self.table, left, self._outcomes, self._usage(), self._sequence, self._adopted)
